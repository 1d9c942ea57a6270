-- Phases of attempts that workers report to the scheduler (`startstops`).
-- depends on: _scheduler_attempts, scheduler_transitions
-- by key: _scheduler_attempts, scheduler_transitions
select number, i.action as action, i.start as start, i.stop as stop, i.source as source
from (select s.number, unnest(e.startstops) as i
      from _scheduler_attempts s join scheduler_transitions e on e._row = s.last_row)
