-- Moments at which a task began to wait again, because its result was lost, or was released and is
-- needed again.
-- depends on: _transitions
-- by key: _transitions
select r._key, w.time from _transitions r join _transitions w on w._row = r.next_row
where r.start_state in ('memory', 'erred') and w.finish_state = 'waiting'
