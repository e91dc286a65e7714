//! Import of other tools' logs.

use std::collections::BTreeMap;
use std::path::Path;

use skyhop_convert::import::{ImportOptions, import_log};

#[test]
fn probes_are_some_time_apart() {
    let texts = BTreeMap::from([("interval".to_owned(), "0 s".to_owned())]);
    let options = ImportOptions { texts, ..ImportOptions::default() };
    let error = import_log(Path::new("ping.txt"), Some("ping"), &options).unwrap_err().to_string();
    assert!(error.starts_with("ping.txt: --interval: 0 s is not a time"), "{error}");
}
