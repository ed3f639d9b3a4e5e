"""Providers of machines behind one small interface. GKE is the first; another cloud is one more folder."""
