//! Stale directories: those that killed processes left are removed by the next process that writes to the
//! directory.

use std::fs;
use std::path::{Path, PathBuf};

use skyhop_files::{Staging, remove_stale, replace_file, temporary_file_for};

/// Create a directory that looks like the staging directory of a killed process.
fn leave(directory: &Path, name: &str) -> PathBuf {
    let left = directory.join(name);
    fs::create_dir_all(left.join("inside")).unwrap();
    fs::write(left.join("inside/half"), "half").unwrap();
    let staging = Staging::with_prefix(&left, "mark-").unwrap();
    fs::copy(staging.path().join(".lock"), left.join(".lock")).unwrap();
    left
}

#[test]
fn directories_that_no_process_holds_go_and_others_stay() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let left = [leave(directory.path(), ".skyhop-left"), leave(directory.path(), ".skyhop-a.gone")];
    // Processes were killed before they wrote the mark.
    let early = [at(".skyhop-empty"), at(".skyhop-early")];
    early.iter().for_each(|place| fs::create_dir(place).unwrap());
    fs::write(early[1].join(".lock"), "").unwrap();
    fs::write(at("precious"), "x").unwrap();
    std::os::unix::fs::symlink(at("precious"), at(".skyhop-link")).unwrap();
    let under_way = temporary_file_for(&at("other")).unwrap();
    let staging = Staging::cleaned(directory.path()).unwrap();
    replace_file(&at("file"), b"whole").unwrap();
    assert!(left.iter().chain(&early).all(|place| !place.exists()));
    assert!(under_way.path().exists() && staging.path().exists());
    let places = [under_way.path(), staging.path().to_owned()];
    drop((under_way, staging));
    assert!(places.iter().all(|place| !place.exists()));
    assert_eq!(fs::read_to_string(at("precious")).unwrap(), "x");
    assert!(at(".skyhop-link").is_symlink(), "a link is not a staging directory");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
}

#[test]
fn only_the_mark_makes_a_directory_skyhops() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join(".skyhop-mine");
    fs::create_dir(&place).unwrap();
    fs::write(directory.path().join(".skyhop-notes"), "notes").unwrap();
    for lock in [None, Some(""), Some("skyhop: unfinished work; mine\n")] {
        fs::write(place.join("chapter"), "months of work").unwrap();
        if let Some(lock) = lock {
            fs::write(place.join(".lock"), lock).unwrap();
        }
        replace_file(&directory.path().join("file"), b"whole").unwrap();
        drop(Staging::cleaned(directory.path()).unwrap());
        assert_eq!(fs::read_to_string(place.join("chapter")).unwrap(), "months of work");
    }
    assert!(directory.path().join(".skyhop-notes").exists());
}

#[test]
fn what_cannot_be_rescued_stays() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["left-good", "left-bad"] {
        leave(directory.path(), name);
    }
    remove_stale(directory.path(), "left-", |left| match left.ends_with("left-bad") {
        true => Err(std::io::Error::other("no")),
        false => fs::write(directory.path().join("rescued"), ""),
    });
    assert!(directory.path().join("left-bad").exists());
    assert!(directory.path().join("rescued").exists());
    assert!(!directory.path().join("left-good").exists());
}
