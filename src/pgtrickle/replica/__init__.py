"""Replicas: columnar copies of captured tables in an open table format (Delta Lake), each at a known cut.

A replica is one Delta table per source table for the whole fleet, in
`<replica_root>/<system identifier>/<database oid>/<table oid>/<generation>`. It is a reader of the source's change
buffer, as a mirror is: the buffer is trimmed only behind its cut. The table at any later cut is the replica, minus the
rows that the window deletes, plus those that it inserts.

How a refresh uses it (`ReplicaStore`):

    store = ReplicaStore(root, engine)
    store.ensure(conn, need)             # before the refresh, conn is idle: builds what is missing, damaged or old
    version = store.open(conn, need)     # in the refresh: a ReplicaVersion, or ReplicaUnavailableError with the reason
    with engine.bulk_session() as spark, store.at_cut(spark, conn, version) as frame:
        ...                              # conn is in the REPEATABLE READ transaction whose snapshot is the cut
    store.advance(conn, need.relid)      # when the window has become large, conn is idle

`ReplicaNeed` names the columns (attribute numbers) and computed columns that a reader needs; a replica has the union of
what its readers need. Columns of the DataFrame are `c<attnum>`, and computed columns by their names, stored as
`pipeline/relational/column_types.py` says. A computed column is an SQL expression over the columns of the table, by
their names, that PostgreSQL evaluates when it reads a row or its image in the change buffer; the caller has
checked that the service role may evaluate it.

Consistency:

* The latest commit of the Delta log contains the cut, a random token, the fingerprint of the source and its server's
  timeline. The row in `pgtrickle.pgt_replicas` is written after it, so it is never later.
* Before a commit its token is announced in that row. A commit whose token the row does not know belongs to another
  history of the database (a restore): the replica is built again. If the process was killed between announcing and
  recording a commit, the next process that opens the replica records it.
* Two processes cannot both commit: the log accepts one commit per version, and an advisory lock makes the second one
  give up before it starts.
* The name of a data file contains a hash of its content, which is compared once per process and file, and again when
  the file's time of modification changes.

`storage.py` is a directory, `objects.py` an object store; everything else works on either.
"""

from pgtrickle.replica.store import ReplicaStore
from pgtrickle.replica.values import Computed, ReplicaId, ReplicaNeed, ReplicaVersion

__all__ = ["Computed", "ReplicaId", "ReplicaNeed", "ReplicaStore", "ReplicaVersion"]
