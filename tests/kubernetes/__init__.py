"""What the tests of infra/kubernetes go by: published schemas, and a reader of kustomizations."""
