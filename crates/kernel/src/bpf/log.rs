//! Log of libbpf, captured for error messages instead of printed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use libbpf_rs::{PrintLevel, set_print};

static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Start to capture libbpf's messages, and discard earlier ones.
pub(super) fn capture() {
    messages().clear();
    set_print(Some((PrintLevel::Warn, |_, text| messages().push(text))));
}

/// Relevant line of the log: the verifier's last line if it refused a program, else libbpf's last line.
pub(super) fn last_line() -> Option<String> {
    let log = messages().concat();
    let verifier = log.split("-- BEGIN PROG LOAD LOG --").nth(1);
    let verifier = verifier.and_then(|log| log.split("-- END PROG LOAD LOG --").next());
    let is_statistics = |line: &str| line.starts_with("processed ") || line.contains("stack depth");
    let lines = verifier.unwrap_or(&log).lines().map(str::trim);
    let mut relevant = lines.filter(|line| !line.is_empty() && !is_statistics(line));
    relevant.next_back().map(str::to_owned)
}

fn messages() -> MutexGuard<'static, Vec<String>> {
    MESSAGES.lock().unwrap_or_else(PoisonError::into_inner)
}
