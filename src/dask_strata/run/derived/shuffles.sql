-- P2P shuffles on each worker: the last sample of each.
-- depends on: shuffle_samples
select worker, shuffle, run_id, kind, start, transferred, partitions_in, shards, shard_bytes,
       shard_seconds, wait_seconds, messages, sent_bytes, send_seconds, received_bytes, on_disk,
       stored_bytes, store_seconds, partitions_out, assembled_bytes, assemble_seconds,
       case when ended then time end as stop
from shuffle_samples
qualify row_number() over (partition by process, shuffle, run_id order by seq desc) = 1
order by start, shuffle, run_id, worker
