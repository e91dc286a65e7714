//! Tests of internals: kernels without links, and objects for older kernels.

use super::*;
use crate::{Status, list, offered};

fn reno() -> &'static Module {
    Module::find("reno").unwrap()
}

/// Features of this kernel; `None`, with a recorded skip, if it cannot load modules.
fn features() -> Option<Features> {
    if reno().bpf_objects().is_none() {
        skyhop_needs::missing("clang", "built without clang");
        return None;
    }
    Features::probe().map_err(|error| skyhop_needs::missing("kernel", error)).ok()
}

#[test]
fn without_links_dropping_a_module_unregisters_it() {
    let Some(features) = features() else { return };
    let module = register_with(reno(), &[], Features { has_links: false, ..features }).unwrap();
    let name = module.kernel_name().to_owned();
    let entry = |name: &str| list().unwrap().into_iter().find(|entry| entry.name == name);
    assert_eq!(entry(&name).unwrap().status, Status::Run(Some("reno")));
    drop(module);
    assert!(!offered().unwrap().contains(&name));
}

#[test]
fn without_links_the_registration_of_a_killed_process_can_be_unloaded() {
    let Some(features) = features() else { return };
    let module = register_with(reno(), &[], Features { has_links: false, ..features }).unwrap();
    let name = module.kernel_name().to_owned();
    // As when the process is killed, no destructor runs.
    std::mem::forget(module);
    assert_eq!(unload(&name).unwrap().kernel_name, name);
    assert!(!offered().unwrap().contains(&name));
    assert!(matches!(unload(&name), Err(KernelError::NotLoaded { .. })));
}

#[test]
fn older_kernels_load_the_object_for_older_kernels() {
    let Some(features) = features() else { return };
    let bbr = Module::find("bbr").unwrap();
    let instructions = |has_four_arguments| {
        let features = Features { has_four_arguments, ..features };
        let prepared = Prepared::new(bbr, &[], "bbr_test", features).unwrap();
        prepared.load().and_then(|loaded| loaded.reports())
    };
    // A kernel's verifier accepts the object built for it; the other object reads `rs` from an argument that this
    // kernel does not pass.
    let own = instructions(features.has_four_arguments).unwrap();
    assert!(own.iter().any(|report| report.name == "bbr_cong_control"));
    let other = instructions(!features.has_four_arguments);
    assert!(matches!(other, Err(KernelError::Refused { .. })), "{other:?}");
}
