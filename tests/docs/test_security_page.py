"""Each sentence of the page on security is proven by a test."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"

LOGS = "tests/recorder/logs/"
SECURITY = "tests/docs/test_security.py::"
LEFT_OUT = "tests/recorder/pipeline/test_anonymize.py::"
SERVE = "tests/server/test_serve.py::"
CONNECTIONS = "tests/server/test_connections.py::"
ACCESS = "tests/server/test_access.py::"
SQL = "tests/server/test_sql_limits.py::"
REDACT = "tests/recorder/pipeline/test_redact.py::"

PLANTED_FILE = "tests/docs/test_planted_secrets.py::"
PLANTED = f"{PLANTED_FILE}test_only_documented_secrets_are_recorded"

COPYING = "tests/recorder/copying/"
ROWS = "tests/report/test_rows.py::"
UPLOAD = "tests/store/copies/test_upload.py::"
PERMISSIONS = "tests/store/test_permissions.py::"

#: The beginning of each sentence, and the tests that prove it.
PROVEN_BY = {
    "The script's text,": (f"{SECURITY}test_the_script_is_recorded",),
    "So are the source lines": (f"{SECURITY}test_the_script_is_recorded",),
    "Keys of tasks, texts": (f"{SECURITY}test_what_is_recorded_by_default",),
    "What processes log,": (
        f"{LOGS}test_logs.py::test_each_record_is_on_record_once_in_order",
        f"{LOGS}test_logs.py::test_what_is_printed_is_on_record_once",
        f"{LOGS}test_logs.py::test_warnings_are_on_record_once",
    ),
    "Names of files": (f"{SECURITY}test_what_is_recorded_by_default",),
    "Host names,": (f"{SECURITY}test_what_is_recorded_by_default",),
    "Of the environment,": (
        f"{SECURITY}test_what_is_recorded_by_default",
        "tests/recorder/environment/test_job.py::test_slurm",
        "tests/recorder/environment/test_kubernetes.py::test_files",
    ),
    "The batch system's own": (
        "tests/deployments/test_slurm_jobs.py::test_cancelled_and_pending",
        "tests/recorder/jobs/test_outputs.py::test_squeue",
    ),
    "Dask's configuration and": (f"{SECURITY}test_what_is_recorded_by_default",),
    "Arguments and results": (f"{SECURITY}test_what_is_recorded_by_default",),
    "Passwords in URLs,": (f"{REDACT}test_secret_in_text", f"{REDACT}test_forms_of_secrets"),
    "Secret names contain": (f"{REDACT}test_secret_name", f"{REDACT}test_forms_of_secrets"),
    "A value may follow": (
        f"{REDACT}test_forms_of_secrets",
        f"{REDACT}test_forms_of_odd_secrets",
    ),
    "A name may have": (f"{REDACT}test_forms_of_odd_secrets",),
    "In texts, a name": (f"{REDACT}test_ordinary_texts",),
    "After an equals sign": (
        f"{REDACT}test_a_word_is_a_value",
        f"{REDACT}test_a_value_that_is_no_secret",
        f"{REDACT}test_ordinary_texts",
    ),
    "After a colon,": (
        f"{REDACT}test_ordinary_texts",
        f"{REDACT}test_a_word_that_may_be_no_value",
    ),
    "A path after `PWD`": (f"{REDACT}test_a_folder_or_a_password",),
    "A password in `-u": (
        f"{REDACT}test_forms_of_secrets",
        f"{REDACT}test_forms_of_odd_secrets",
        f"{REDACT}test_a_user_with_a_password_on_a_command_line",
        f"{REDACT}test_secrets_on_a_command_line_are_left_out",
    ),
    "So is a password": (
        f"{REDACT}test_forms_of_odd_secrets",
        f"{REDACT}test_secrets_on_a_command_line_are_left_out",
    ),
    "A path or address": (PLANTED,),
    "In annotations, messages": (f"{REDACT}test_values_of_secret_names", PLANTED),
    "This applies to": (
        PLANTED,
        f"{SECURITY}test_secrets_are_nowhere_in_the_folder",
        f"{LOGS}test_logs.py::test_no_secret_is_on_record",
        f"{SECURITY}test_the_script_is_recorded",
    ),
    "A setting or variable": (
        "tests/recorder/environment/test_dask_config.py::test_secrets",
        "tests/recorder/environment/test_job.py::test_secrets_of_the_environment_are_not_recorded",
    ),
    "A secret in any of these": (PLANTED, f"{PLANTED_FILE}test_the_page_names_all_kinds"),
    "| `keys` |": (PLANTED, f"{SECURITY}test_what_looks_like_no_secret_is_recorded"),
    "| `names` |": (PLANTED,),
    "| `unnamed` |": (PLANTED, f"{SECURITY}test_what_looks_like_no_secret_is_recorded"),
    "| `encoded` |": (PLANTED,),
    "| `files` |": (PLANTED,),
    "On a terminal, control": (
        f"{ROWS}test_nothing_controls_the_terminal",
        f"{ROWS}test_no_command_lets_a_run_control_the_terminal",
    ),
    "In CSV, a text": (
        f"{ROWS}test_no_cell_of_a_csv_file_is_a_formula",
        "tests/capture/test_command.py::test_no_cell_is_a_formula",
        f"{ROWS}test_other_formats_have_the_exact_texts",
    ),
    "Only its owner:": (
        f"{PERMISSIONS}test_files_have_the_permissions_that_the_setting_chooses",
        f"{PERMISSIONS}test_an_imported_run_is_the_owners",
    ),
    "The setting `access` chooses": (
        f"{PERMISSIONS}test_files_have_the_permissions_that_the_setting_chooses",
        f"{PERMISSIONS}test_a_wrong_value_is_an_error",
    ),
    "Files that are written into a run later": (
        f"{PERMISSIONS}test_what_is_added_has_the_permissions_of_the_folder",
    ),
    "An imported run": (f"{PERMISSIONS}test_an_imported_run_is_the_owners",),
    "So does the page": (
        f"{PERMISSIONS}test_the_page_of_a_recording_has_the_permissions_of_the_run",
    ),
    "A run for an object store": (
        "tests/recorder/test_upload.py::test_a_spool_is_readable_by_its_owner_only",
        f"{UPLOAD}test_the_copies_that_were_not_used_for_longest_are_removed",
    ),
    "In messages, `***`": (
        "tests/store/copies/test_place.py::test_a_password_in_a_url_is_not_shown",
    ),
    "The archive of a run": (
        f"{PERMISSIONS}test_an_extracted_archive_has_the_permissions_of_the_run",
    ),
    "A worker of another user": (f"{PERMISSIONS}test_another_user_sends_records_to_the_scheduler",),
    "The setting `leave-out`": (
        f"{LEFT_OUT}test_a_setting_that_is_unknown_is_refused",
        f"{SECURITY}test_the_command_leaves_out",
    ),
    "Left-out facts are": (f"{SECURITY}test_what_is_left_out_is_nowhere",),
    "| `code` |": (f"{SECURITY}test_the_command_leaves_out", f"{LEFT_OUT}test_facts_of_the_job"),
    "| `logs` |": (f"{LOGS}test_attach.py::test_logs_are_left_out",),
    "| `paths` |": (f"{SECURITY}test_what_is_left_out_is_nowhere", f"{LEFT_OUT}test_texts"),
    "| `hosts` |": (f"{SECURITY}test_what_is_left_out_is_nowhere", f"{LEFT_OUT}test_texts"),
    "| `users` |": (f"{SECURITY}test_what_is_left_out_is_nowhere", f"{LEFT_OUT}test_texts"),
    "| `arguments` |": (f"{LEFT_OUT}test_facts_of_the_job",),
    "| `environment` |": (f"{LEFT_OUT}test_facts_of_the_job",),
    "| `errors` |": (f"{LEFT_OUT}test_columns_that_are_dropped",),
    "| `settings` |": (f"{SECURITY}test_the_command_leaves_out",),
    "Hosts, paths and users each get": (f"{LEFT_OUT}test_names_are_the_same_within_a_run_only",),
    "Where one of these": (
        f"{LEFT_OUT}test_facts_of_the_job",
        f"{LEFT_OUT}test_settings_that_stay",
    ),
    "The run's name,": (f"{SECURITY}test_what_is_left_out_is_nowhere",),
    "A relative path": (f"{LEFT_OUT}test_texts_that_stay",),
    "A random number": (f"{SECURITY}test_what_is_left_out_is_nowhere",),
    "Darshan's own logs": (f"{LEFT_OUT}test_darshan_is_refused",),
    "Files that are imported": (f"{SECURITY}test_what_is_left_out_is_nowhere",),
    "A worker whose": (f"{SECURITY}test_a_worker_that_cannot_leave_out_is_not_recorded",),
    "`check` lists": (f"{SECURITY}test_what_is_left_out_is_nowhere",),
    "Nothing in a run folder": (f"{SECURITY}test_nothing_in_a_run_folder_is_executed",),
    "Its texts are displayed": (
        f"{SERVE}test_every_page_of_a_run",
        "tests/cli/test_cli.py::test_odd_keys_are_exact_in_data_and_harmless_on_a_terminal",
    ),
    "A query can only read,": (
        f"{SERVE}test_a_query_that_does_more_than_read_is_refused",
        "tests/cli/test_cli.py::test_sql_that_is_wrong_or_not_read_only_is_refused",
    ),
    "A run is not signed:": (f"{SECURITY}test_a_run_is_what_its_folder_says",),
    "Recording opens no port:": (f"{SECURITY}test_recording_opens_no_port",),
    "The plugins that Dask sends": (
        "tests/recorder/test_plugins.py::test_a_pickle_has_names_only",
    ),
    "A run that a client copies": (
        f"{COPYING}test_fetch.py::test_a_scheduler_cannot_write_outside_the_run",
        "tests/store/copies/test_growth.py::test_names_that_lead_out_of_the_run_are_refused",
        "tests/store/copies/test_growth.py::test_links_in_the_copy_are_not_followed",
    ),
    "While a scheduler that does not": (
        f"{COPYING}test_elsewhere.py::test_only_the_user_can_open_the_spool",
    ),
    "Records that a process sends": (f"{SECURITY}test_records_go_to_segments_only",),
    "`dask-strata serve` listens": (f"{SECURITY}test_the_server_listens_on_loopback",),
    "It requires a token": (
        f"{ACCESS}test_every_address_needs_the_token",
        f"{ACCESS}test_a_wrong_token_reads_nothing",
        f"{ACCESS}test_another_user_of_this_machine_reads_nothing",
    ),
    "Only `--no-token`": (f"{ACCESS}test_options_for_the_token",),
    "With `--socket`": (
        f"{ACCESS}test_a_unix_socket",
        f"{ACCESS}test_another_user_of_this_machine_reads_nothing",
    ),
    "The token is neither": (
        f"{ACCESS}test_no_page_and_no_output_has_the_token",
        f"{ACCESS}test_the_printed_address_sets_a_cookie",
    ),
    "On loopback and on a socket": (
        f"{ACCESS}test_foreign_names_are_refused",
        f"{ACCESS}test_a_unix_socket",
    ),
    "It refuses requests": (f"{ACCESS}test_requests_of_other_sites_are_refused",),
    "It closes a connection on which": (f"{ACCESS}test_half_sent_requests_end",),
    "It closes a connection whose": (
        f"{CONNECTIONS}test_a_client_that_does_not_read_is_disconnected",
    ),
    "It refuses connections": (
        f"{CONNECTIONS}test_connections_beyond_the_limit_are_refused",
        f"{CONNECTIONS}test_many_more_connections_leave_the_server_able_to_answer",
    ),
    "A query runs": (
        f"{SQL}test_memory_and_bytes",
        f"{SQL}test_slow_queries_do_not_delay_pages",
    ),
    "An answer to a query": (f"{SQL}test_memory_and_bytes",),
    "Queries do not delay": (f"{SQL}test_slow_queries_do_not_delay_pages",),
    "It does not encrypt": (f"{SECURITY}test_the_server_listens_on_loopback",),
    "Nothing can be changed": (
        f"{SERVE}test_a_query_that_does_more_than_read_is_refused",
        f"{SERVE}test_unknown_addresses_have_an_error_page",
        f"{SECURITY}test_the_server_only_reads",
    ),
}


def sentences() -> list[str]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith(("#", "|---", "| name |"))]


def test_each_sentence_is_proven_by_a_test() -> None:
    """Every sentence has a test, and every listed beginning is on the page."""
    unproven = [s for s in sentences() if not any(s.startswith(b) for b in PROVEN_BY)]
    assert not unproven
    gone = [b for b in PROVEN_BY if not any(s.startswith(b) for s in sentences())]
    assert not gone
    assert len(sentences()) == len(PROVEN_BY)


def test_a_line_is_one_sentence() -> None:
    """Each line is one sentence: a second one on a line would have no test."""
    more = [s for s in sentences() if not s.startswith("|") and re.search(r"[.!?]\s", s)]
    assert not more
    assert all(s.endswith((".", "|")) for s in sentences())


def test_the_tests_are_there() -> None:
    """Each listed test exists."""
    for tests in PROVEN_BY.values():
        for test in tests:
            file, _, name = test.partition("::")
            text = (ROOT / file).read_text(encoding="utf-8")
            assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), test
