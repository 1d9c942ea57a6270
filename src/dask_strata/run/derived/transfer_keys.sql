-- Keys of each transfer.
-- depends on: _numbered_transfers, transfer_end_keys
-- order: transfer
select p.transfer, k._key, k.key, k.key_type, k.nbytes
from _numbered_transfers p join transfer_end_keys k on k.process = p.process and k.number = p.number
