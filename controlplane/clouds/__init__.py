"""Providers of machines behind one small interface. GKE is the first; another cloud needs mainly its own folder."""
