//! Tests of every module of cc/ on the running kernel; skipped where no module can be loaded.

use crate::lab;
use skyhop_cc::Module;
use skyhop_kernel::{KernelError, Status, check, list, load, offered, register, unload};

use crate::lab::{in_own_mounts, send_over_loopback};

#[test]
fn every_module_passes_the_verifier() {
    let before = offered().unwrap();
    for module in Module::all() {
        let Some(reports) = lab::unless_impossible(check(module)) else { return };
        assert!(!reports.is_empty(), "{}", module.name());
        for report in reports {
            assert!(report.instructions > 0, "{}: {report:?}", module.name());
            assert!(report.verified.is_none_or(|verified| verified > 0), "{report:?}");
        }
    }
    assert_eq!(offered().unwrap(), before, "something was registered");
}

#[test]
fn a_module_carries_data_while_it_is_registered_and_is_gone_afterwards() {
    carries_data(["cubic", "satpipe"].map(|name| Module::find(name).unwrap()));
}

#[test]
#[ignore = "soak: takes long"]
fn every_module_carries_data_while_it_is_registered_and_is_gone_afterwards() {
    carries_data(Module::all());
}

fn carries_data(modules: impl IntoIterator<Item = &'static Module>) {
    for module in modules {
        let Some(registered) = lab::unless_impossible(register(module, &[])) else { return };
        let name = registered.kernel_name().to_owned();
        assert!(offered().unwrap().contains(&name));
        let sent = 4 << 20;
        assert_eq!(send_over_loopback(&name, sent).unwrap(), sent, "{name}");
        drop(registered);
        assert!(!offered().unwrap().contains(&name), "{name}");
    }
}

#[test]
fn loaded_modules_outlive_the_call_until_they_are_unloaded() {
    in_own_mounts(|| {
        let cubic = Module::find("cubic").unwrap();
        let Some(loaded) = lab::unless_impossible(load(cubic, &[("beta", "0.5")])) else { return };
        // The kernel has its own cubic, hence the prefix.
        assert_eq!(loaded.kernel_name, "skyhop_cubic");
        let entry = |name: &str| list().unwrap().into_iter().find(|entry| entry.name == name);
        assert_eq!(entry("skyhop_cubic").unwrap().status, Status::Loaded(Some("cubic")));
        assert!(matches!(load(cubic, &[]), Err(KernelError::AlreadyLoaded { .. })));

        let connection = lab::Connection::open("skyhop_cubic").unwrap();
        let users = || entry("skyhop_cubic").and_then(|entry| entry.sockets);
        assert!(users().is_none_or(|count| count >= 1));
        let unloaded = unload("cubic").unwrap();
        assert_eq!(unloaded.kernel_name, "skyhop_cubic");
        assert!(unloaded.sockets.is_none_or(|count| count >= 1), "{unloaded:?}");
        // Existing connections keep it; new ones cannot choose the name.
        assert_eq!(connection.send(1 << 20).unwrap(), 1 << 20);
        assert!(lab::Connection::open("skyhop_cubic").is_err());
        assert!(matches!(unload("cubic"), Err(KernelError::NotLoaded { .. })));
        assert!(!std::path::Path::new("/sys/fs/bpf/skyhop").exists());
    });
}

#[test]
fn what_a_killed_load_left_is_removed_by_the_next_call() {
    in_own_mounts(|| {
        let cubic = Module::find("cubic").unwrap();
        let Some(_) = lab::unless_impossible(load(cubic, &[])) else { return };
        unload("cubic").unwrap();
        let pins = std::path::Path::new("/sys/fs/bpf/skyhop");
        let calls: [fn(); 4] = [
            || drop(list().unwrap()),
            || drop(unload("cubic")),
            || drop(skyhop_kernel::pinned_signal_maps()),
            || drop(load(Module::find("cubic").unwrap(), &[])),
        ];
        for (place, call) in calls.into_iter().enumerate() {
            // The process was killed before the pin of the registration.
            std::fs::create_dir_all(pins.join("half")).unwrap();
            call();
            assert!(!pins.join("half").exists(), "call {place}");
        }
        let _: Result<_, _> = unload("cubic");
        assert!(!pins.exists());
    });
}

#[test]
fn wrong_parameters_are_refused_before_anything_is_loaded() {
    let cubic = Module::find("cubic").unwrap();
    for (name, value, expected) in [("betta", "0.5", "beta"), ("beta", "7", "number from")] {
        match register(cubic, &[(name, value)]) {
            Err(KernelError::Module(error)) => {
                assert!(error.to_string().contains(expected), "{error}");
            }
            result => assert!(lab::unless_impossible(result).is_none()),
        }
    }
}

/// The check precedes any request to the kernel and needs no privileges.
#[test]
fn a_hook_that_the_kernel_never_calls_is_refused_by_its_name() {
    let info = Module::fixture("info");
    for refused in [check(info).err(), load(info, &[]).err(), register(info, &[]).err()] {
        let refused = refused.unwrap();
        assert!(refused.is_input());
        assert_eq!(
            refused.to_string(),
            "cc/info.c defines get_info, which the kernel never calls: leave it out, or run it where it is called"
        );
    }
}
