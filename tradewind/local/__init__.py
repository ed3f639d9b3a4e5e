"""Everything that a job needs on this machine, for one command: started, kept alive, ended without a trace."""
