-- Exceptions that an execution reported and caught.
-- depends on: reports
select process, execution, any_value(name) as exception
from reports where kind = 'exception' group by process, execution
