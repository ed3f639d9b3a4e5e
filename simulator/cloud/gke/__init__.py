"""GKE's own gRPC API, answered with Google's own message classes. The only folder that imports google and grpc."""
