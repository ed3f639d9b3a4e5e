"""Google Kubernetes Engine as its nodes show it."""
