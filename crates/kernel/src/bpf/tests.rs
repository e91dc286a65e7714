//! What only the parts can show: the way of kernels without links, and what the maps hold.

use super::*;
use crate::{Status, list, offered};

fn reno() -> &'static Module {
    Module::find("reno").unwrap()
}

/// What this kernel can; `None` with the reason told, where nothing can be loaded.
fn features() -> Option<Features> {
    if reno().bpf_objects().is_none() {
        skyhop_needs::missing("clang", "built without clang");
        return None;
    }
    Features::probe().map_err(|error| skyhop_needs::missing("kernel", error)).ok()
}

#[test]
fn without_links_a_holder_unregisters_at_its_end() {
    let Some(features) = features() else { return };
    let held = hold_with(reno(), &[], Features { has_links: false, ..features }).unwrap();
    let name = held.kernel_name().to_owned();
    let entry = |name: &str| list().unwrap().into_iter().find(|entry| entry.name == name);
    assert_eq!(entry(&name).unwrap().status, Status::Run(Some("reno")));
    drop(held);
    assert!(!offered().unwrap().contains(&name));
}

#[test]
fn without_links_what_a_killed_holder_leaves_can_be_unloaded() {
    let Some(features) = features() else { return };
    let held = hold_with(reno(), &[], Features { has_links: false, ..features }).unwrap();
    let name = held.kernel_name().to_owned();
    // As if its process had been killed: no destructor runs.
    std::mem::forget(held);
    assert_eq!(unload(&name).unwrap().kernel_name, name);
    assert!(!offered().unwrap().contains(&name));
    assert!(matches!(unload(&name), Err(KernelError::NotLoaded { .. })));
}

#[test]
fn the_object_for_older_kernels_is_taken_where_the_kernel_is_older() {
    let Some(features) = features() else { return };
    let bbr = Module::find("bbr").unwrap();
    let instructions = |has_four_arguments| {
        let features = Features { has_four_arguments, ..features };
        let prepared = Prepared::new(bbr, &[], "bbr_test", features).unwrap();
        prepared.load().and_then(|loaded| loaded.reports())
    };
    // Each kernel's verifier accepts the object that was built for it; the other reads `rs` from where
    // this kernel does not have it.
    let own = instructions(features.has_four_arguments).unwrap();
    assert!(own.iter().any(|report| report.name == "bbr_cong_control"));
    let other = instructions(!features.has_four_arguments);
    assert!(matches!(other, Err(KernelError::Refused { .. })), "{other:?}");
}
