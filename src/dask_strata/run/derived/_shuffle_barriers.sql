-- Attempts that only wait until all workers have sent their shards of a P2P shuffle.
-- depends on: attempts, shuffles
-- by key: attempts
select a.attempt, a._key from attempts a
where starts_with(a.key, 'shuffle-barrier-')
  and substr(a.key, length('shuffle-barrier-') + 1) in (select shuffle from shuffles)
