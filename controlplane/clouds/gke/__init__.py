"""Google Kubernetes Engine behind the cloud interface. Start with `controlplane.clouds.gke.cloud.GkeCloud`."""
