//! Tests of the cache: each loads files in child processes, which have their own cache.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use skyhop_ccfile::load;

use crate::idea;

/// Name of the test that the child processes run.
const IN_PROCESS: &str = "cache::loads_the_file_that_its_parent_names";

/// Start a child process that loads a file and prints the result.
fn start(file: &Path, cache: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", IN_PROCESS, "--nocapture"])
        .env("SKYHOP_TEST_FILE", file)
        .env("XDG_CACHE_HOME", cache)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn output_of(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.split_once("RESULT ")).map(|(_, result)| result);
    line.unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[test]
fn loads_the_file_that_its_parent_names() {
    let Some(file) = env::var_os("SKYHOP_TEST_FILE") else { return };
    let loaded = load(Path::new(&file)).unwrap();
    println!("RESULT {} {}", loaded.module.name(), loaded.compiled.is_new);
}

fn objects(cache: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(cache.join("skyhop/cc")).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "so")).collect()
}

#[test]
fn several_processes_at_once_leave_one_whole_object() {
    let place = tempfile::tempdir().unwrap();
    let (file, cache) = (idea(place.path(), "70"), place.path().join("cache"));
    let all: Vec<Child> = (0..6).map(|_| start(&file, &cache)).collect();
    for child in all {
        assert!(output_of(child).starts_with("idea "));
    }
    assert_eq!(objects(&cache).len(), 1);
    let left = fs::read_dir(cache.join("skyhop/cc")).unwrap().count();
    assert_eq!(left, 3, "the object, the headers and the mark, and nothing unfinished");
    assert_eq!(output_of(start(&file, &cache)), "idea false");
}

#[test]
fn a_damaged_object_is_made_again() {
    let place = tempfile::tempdir().unwrap();
    let (file, cache) = (idea(place.path(), "70"), place.path().join("cache"));
    assert_eq!(output_of(start(&file, &cache)), "idea true");
    let object = objects(&cache).remove(0);
    let whole = fs::read(&object).unwrap();
    fs::write(&object, b"not an object").unwrap();
    assert_eq!(output_of(start(&file, &cache)), "idea true");
    assert_eq!(fs::read(&object).unwrap().len(), whole.len());
    fs::write(cache.join("skyhop/cc/headers-x"), "").unwrap();
    assert_eq!(output_of(start(&file, &cache)), "idea false");
}

#[test]
fn without_a_cache_it_is_compiled_each_time() {
    let place = tempfile::tempdir().unwrap();
    let file = idea(place.path(), "70");
    // Root may write to read-only directories, but cannot create files below a file.
    let cache = place.path().join("cache");
    fs::write(&cache, "").unwrap();
    for _ in 0..2 {
        assert_eq!(output_of(start(&file, &cache)), "idea true");
    }
    let shut = place.path().join("shut");
    fs::create_dir(&shut).unwrap();
    fs::set_permissions(&shut, fs::Permissions::from_mode(0o500)).unwrap();
    assert!(output_of(start(&file, &shut)).starts_with("idea "));
}
