"""Google Kubernetes Engine behind the cloud interface. `controlplane.clouds.gke.cloud.GkeCloud` is the way in."""
