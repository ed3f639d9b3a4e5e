"""The cloud as a pure core: what was asked, what there is, what becomes of it as time goes by."""
