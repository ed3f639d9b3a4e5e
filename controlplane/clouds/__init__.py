"""Providers of machines behind one small interface. GKE is the first; of another cloud most is one more folder."""
