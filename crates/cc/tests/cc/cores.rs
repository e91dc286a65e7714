//! Compatibility of the headers of cc/: tests/modules/cores.c includes all of them.

use std::process::Command;

use skyhop_cc::{CongestionControl, Instance, Module};

use crate::path::Sender;

fn cores() -> Instance {
    Instance::new(Module::fixture("cores"), &[("beta", "0.5"), ("probe_gain", "1.5")]).unwrap()
}

#[test]
fn a_module_of_two_cores_has_the_parameters_of_both_and_fills_a_clean_path() {
    let mut sender = Sender::new(cores(), 100, 20_000);
    sender.run_until(5_000_000);
    let before = sender.tp.delivered;
    sender.run_until(9_000_000);
    assert!(sender.tp.delivered - before > 36_000);
    let cwnd = sender.tp.snd_cwnd;
    assert_eq!(sender.cc.ssthresh(&mut sender.tp), cwnd / 2);
}

#[test]
fn a_windowed_minimum_forgets_what_is_older_than_its_window() {
    let mut sender = Sender::new(cores(), 100, 20_000);
    let least = |sender: &mut Sender| sender.cc.undo_cwnd(&mut sender.tp);
    sender.run_until(3_000_000);
    assert!((20_000..20_200).contains(&least(&mut sender)), "{}", least(&mut sender));
    sender.rtt_us = 50_000;
    sender.run_until(4_000_000);
    assert!(least(&mut sender) < 25_000, "still within two seconds");
    sender.run_until(8_000_000);
    assert!(least(&mut sender) >= 50_000, "{}", least(&mut sender));
}

/// The headers also fit together when compiled for the kernel.
#[test]
fn two_cores_in_one_module_compile_for_the_kernel() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let arch = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let mut clang = Command::new("clang");
    clang.args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-std=gnu11", "-Wall", "-Wextra"]);
    clang.args(["-Werror", "-idirafter", &arch, "-I", &format!("{root}/cc"), "-o", "/dev/null"]);
    clang.arg("-c").arg(format!("{root}/crates/cc/tests/modules/cores.c"));
    match Module::all()[0].bpf_objects().is_some().then(|| clang.output()) {
        Some(Ok(out)) => assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr)),
        _ => skyhop_needs::missing("clang", "built without clang"),
    }
}
