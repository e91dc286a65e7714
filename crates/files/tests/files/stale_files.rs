//! Stale files: entries that killed processes left are removed by the next process that writes to the
//! directory.

use std::fs;

use skyhop_files::{Staging, remove_stale, replace_file, temporary_file_for};

#[test]
fn files_that_nobody_holds_go_and_others_stay() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at(".skyhop-left"), "half").unwrap();
    fs::create_dir_all(at(".skyhop-directory/inside")).unwrap();
    fs::write(at("precious"), "x").unwrap();
    std::os::unix::fs::symlink(at("precious"), at(".skyhop-link")).unwrap();
    let under_way = temporary_file_for(&at("other"), b"half").unwrap();
    let staging = Staging::cleaned(directory.path()).unwrap();
    replace_file(&at("file"), b"whole").unwrap();
    assert!(!at(".skyhop-left").exists() && !at(".skyhop-directory").exists());
    assert!(under_way.path().exists() && staging.path().exists());
    let places = [under_way.path(), staging.path()].map(ToOwned::to_owned);
    drop((under_way, staging));
    assert!(places.iter().all(|place| !place.exists()));
    assert_eq!(fs::read_to_string(at("precious")).unwrap(), "x");
    assert!(at(".skyhop-link").is_symlink(), "it is not what is left of a file");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
}

#[test]
fn what_cannot_be_rescued_stays() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["left-good", "left-bad"] {
        fs::create_dir(directory.path().join(name)).unwrap();
    }
    remove_stale(directory.path(), "left-", |left| match left.ends_with("left-bad") {
        true => Err(std::io::Error::other("no")),
        false => fs::write(directory.path().join("rescued"), ""),
    });
    assert!(directory.path().join("left-bad").exists());
    assert!(directory.path().join("rescued").exists());
    assert!(!directory.path().join("left-good").exists());
}
