//! Tests of loading user files: each becomes a module or an error.

use std::fs;
use std::path::Path;

use skyhop_cc::{CcError, CongestionControl, Instance, Module, Setup, TcpSock};
use skyhop_ccfile::{CcFileError, bpf_objects, examples, load};

use crate::{has, idea};

fn ssthresh(module: &'static Module) -> u32 {
    let mut instance = Instance::with_setup(module, &Setup::default()).unwrap();
    instance.ssthresh(&mut TcpSock { snd_cwnd: 100, ..TcpSock::default() })
}

#[test]
fn a_file_is_a_module_and_a_changed_one_is_another() {
    let place = tempfile::tempdir().unwrap();
    let first = load(&idea(place.path(), "70")).unwrap();
    let file = first.sources.file().to_owned();
    assert!(first.compiled.is_new);
    assert_eq!((first.module.name(), first.module.origin()), ("idea", file.clone()));
    assert_eq!(Module::find(&file).unwrap(), first.module);
    let second = load(&idea(place.path(), "80")).unwrap();
    assert_eq!((ssthresh(first.module), ssthresh(second.module)), (70, 80));
    assert_eq!(Module::find(&file).unwrap(), second.module);
    // The original content again: nothing is compiled or loaded again.
    let again = load(&idea(place.path(), "70")).unwrap();
    assert!(!again.compiled.is_new);
    assert_eq!((again.module, Module::find(&file).unwrap()), (first.module, first.module));
}

#[test]
fn a_changed_header_is_a_changed_file() {
    let place = tempfile::tempdir().unwrap();
    let file = idea(place.path(), "CUT");
    let text = format!("#include \"cut.h\"\n{}", fs::read_to_string(&file).unwrap());
    fs::write(&file, text).unwrap();
    let with = |cut: &str| {
        fs::write(place.path().join("cut.h"), format!("#define CUT {cut}\n")).unwrap();
        load(&file).unwrap()
    };
    let (first, second) = (with("50"), with("60"));
    assert_eq!((ssthresh(first.module), ssthresh(second.module)), (50, 60));
    assert_eq!(first.sources.digests().len(), 2);
    assert_ne!(first.sources.digests(), second.sources.digests());
}

#[test]
fn a_file_of_skyhops_does_the_same_as_one_of_the_users() {
    assert!(examples().contains(&"satpipe"));
    do_the_same(&["satpipe", "cubic"]);
}

#[test]
#[ignore = "soak: takes long"]
fn skyhops_own_files_do_the_same_as_files_of_the_users() {
    do_the_same(&examples());
}

fn do_the_same(names: &[&str]) {
    let place = tempfile::tempdir().unwrap();
    for name in names {
        let file = place.path().join(format!("{name}.c"));
        fs::write(&file, skyhop_ccfile::example(name).unwrap()).unwrap();
        let (own, copy) = (Module::find(name).unwrap(), load(&file).unwrap().module);
        assert_ne!(own, copy);
        assert_eq!(own.about(), copy.about());
        assert_eq!(own.uses_announcements(), copy.uses_announcements());
        assert!(own.params().eq(copy.params()), "{name}");
        assert!(own.hooks().eq(copy.hooks()), "{name}");
    }
}

#[test]
fn compiler_messages_are_passed_on_unchanged() {
    let place = tempfile::tempdir().unwrap();
    let refused = load(&idea(place.path(), "no_such_variable")).unwrap_err();
    let messages = refused.messages().unwrap();
    assert!(messages.contains("idea.c:") && messages.contains("no_such_variable"), "{messages}");
    assert!(refused.is_input() && refused.to_string().lines().count() == 1, "{refused}");
    // A warning is not an error, and is returned again from the cache.
    let warned = "({ int unused_thing; 70; })";
    for _ in 0..2 {
        let loaded = load(&idea(place.path(), warned)).unwrap();
        assert!(loaded.compiled.messages.contains("unused_thing"), "{loaded:?}");
    }
}

/// Error of the test file with `line` replaced by `other`.
fn refused(line: &str, other: &str) -> CcFileError {
    let place = tempfile::tempdir().unwrap();
    let file = idea(place.path(), "70");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(line), "{line}");
    fs::write(&file, text.replace(line, other)).unwrap();
    load(&file).unwrap_err()
}

#[test]
fn hooks_that_are_missing_or_unknown_are_named() {
    let comma = "SKYHOP_FN(reno_cong_avoid),\n";
    let missing = refused(&format!(".cong_avoid = {comma}"), "");
    let CcFileError::Module(CcError::MissingHook { origin, hook }) = missing else {
        panic!("{missing}");
    };
    assert!(origin.ends_with("/idea.c") && hook == "cong_avoid or cong_control");
    let unknown = refused(".cong_avoid =", ".cong_avoids =");
    assert!(
        matches!(&unknown, CcFileError::UnknownHook { hook, .. } if hook == "cong_avoids"),
        "{unknown}"
    );
    let none = refused("SKYHOP_MODULE(", "#define NOT_A_MODULE(...) \nNOT_A_MODULE(");
    assert!(matches!(none, CcFileError::NoModule { .. }), "{none}");
    // A function of the kernel is not a BPF program.
    let function = refused("SKYHOP_FN(reno_cong_avoid)", "SKYHOP_FN(tcp_reno_cong_avoid)");
    assert!(function.messages().unwrap().contains("tcp_reno_cong_avoid_is_a_hook"), "{function}");
    let name = refused("SKYHOP_MODULE(reno,", "SKYHOP_MODULE(sixteen_letters_,");
    assert!(name.messages().unwrap().contains("at most 15 letters"), "{name}");
}

#[test]
fn a_missing_file_cannot_be_read() {
    let error = load(Path::new("/nowhere/idea.c")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/nowhere/idea.c: cannot read: No such file or directory (os error 2)"
    );
}

#[test]
fn a_file_is_compiled_for_the_kernel_as_it_was_loaded() {
    if !has("clang") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let module = load(&idea(place.path(), "70")).unwrap().module;
    let objects = bpf_objects(module).unwrap();
    for object in [objects.current, objects.before_6_10] {
        assert!(object.starts_with(b"\x7fELF"));
    }
    let floats = load(&idea(place.path(), "(u32)(tcp_sk(sk)->snd_cwnd * 0.7)")).unwrap().module;
    assert_eq!(ssthresh(floats), 70, "the simulator has floats");
    let refused = bpf_objects(floats).err().unwrap();
    assert!(refused.messages().unwrap().contains("idea.c:"), "{refused}");
    idea(place.path(), "90");
    let changed = bpf_objects(load(&idea(place.path(), "91")).unwrap().module);
    assert!(changed.is_ok());
    let stale = load(&idea(place.path(), "92")).unwrap().module;
    idea(place.path(), "93");
    assert!(matches!(bpf_objects(stale), Err(CcFileError::Changed { .. })));
}
