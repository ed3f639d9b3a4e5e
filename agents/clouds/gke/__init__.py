"""What agents know about Google Kubernetes Engine."""
