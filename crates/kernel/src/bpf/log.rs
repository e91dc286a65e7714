//! What libbpf says while it works, kept for the error message instead of printed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use libbpf_rs::{PrintLevel, set_print};

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Listens from now on; what was said before is forgotten.
pub(super) fn listen() {
    said().clear();
    set_print(Some((PrintLevel::Warn, |_, text| said().push(text))));
}

/// What matters of what was said: the verifier's last line where it refused a program.
pub(super) fn last_word() -> Option<String> {
    let said = said().concat();
    let verifier = said.split("-- BEGIN PROG LOAD LOG --").nth(1);
    let verifier = verifier.and_then(|log| log.split("-- END PROG LOAD LOG --").next());
    let is_statistics = |line: &str| line.starts_with("processed ") || line.contains("stack depth");
    let lines = verifier.unwrap_or(&said).lines().map(str::trim);
    let mut words = lines.filter(|line| !line.is_empty() && !is_statistics(line));
    words.next_back().map(str::to_owned)
}

fn said() -> MutexGuard<'static, Vec<String>> {
    SAID.lock().unwrap_or_else(PoisonError::into_inner)
}
