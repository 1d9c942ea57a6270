-- Transfers between workers.
-- depends on: _numbered_transfers
select transfer, start, stop, source, destination, total_bytes, compressed_bytes,
       seen_by, n_keys
from _numbered_transfers order by transfer
