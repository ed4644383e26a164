"""From a delta to committed rows: content, hidden state, frontier and history in one fenced transaction."""
