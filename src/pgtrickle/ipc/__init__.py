"""How the processes of a fleet communicate: shared memory, sockets, messages from scheduler to dispatcher."""
