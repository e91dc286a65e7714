//! Tests that a run leaves nothing behind, does not change the host, and needs no root.

use crate::lab;
use skyhop_model::End;
use skyhop_units::Duration;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::lab::{
    SKIPPED, becomes_true, children, exit_status, fixed, forked, mbit, ms, probe, processes,
    program, tcp,
};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Gid, Pid, Uid, geteuid, setgroups, setresgid, setresuid};
use skyhop_engine::{Control, Unattended};
use skyhop_experiment::Experiment;
use skyhop_host::HostError;
use skyhop_live::LiveOptions;
use skyhop_model::LiveDevice;

/// State of the host that a run must not change: settings, devices, mounts and the network namespace.
fn host() -> BTreeMap<String, String> {
    let mut host = BTreeMap::new();
    let sysctls = ["tcp_rmem", "tcp_wmem", "tcp_congestion_control", "tcp_no_metrics_save"];
    for name in sysctls {
        let file = format!("/proc/sys/net/ipv4/{name}");
        host.insert(name.to_owned(), fs::read_to_string(&file).expect("a sysctl can be read"));
    }
    let devices = fs::read_to_string("/proc/net/dev").expect("devices can be listed");
    let names: Vec<&str> =
        devices.lines().filter_map(|line| line.split_once(':')).map(|(n, _)| n.trim()).collect();
    host.insert("devices".to_owned(), names.join(" "));
    let own = fs::metadata("/proc/self/ns/net").expect("the namespace is known").ino();
    host.insert("namespace".to_owned(), own.to_string());
    host.insert("mounts".to_owned(), fs::read_to_string("/proc/self/mounts").expect("mounts"));
    host
}

fn is_running(argument: &str) -> bool {
    processes().iter().any(|(pid, _)| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.split(|byte| *byte == 0).any(|word| word == argument.as_bytes())
    })
}

#[test]
fn the_host_stays_as_it_was() {
    let mut experiment = fixed(ms(5), mbit(20), ms(500));
    experiment.flows.push(tcp(0, End::From, "cubic", None));
    let caller = forked(|| {
        let before = host();
        if lab::run(&experiment).is_none() {
            return SKIPPED;
        }
        assert_eq!(host(), before);
        assert_eq!(children(std::process::id() as i32), Vec::<i32>::new());
        0
    });
    assert!(matches!(exit_status(caller), 0 | SKIPPED));
}

#[test]
#[ignore = "soak: kills"]
fn kill_9_takes_a_daemonised_grandchild_along() {
    let marker = format!("8639.{}", std::process::id());
    let daemonise = format!("setsid sh -c 'sleep {marker} & exit' & wait; sleep 600");
    let experiment = fixed(ms(5), mbit(20), ms(60_000));
    let options = LiveOptions {
        program: Some(program(&["sh", "-c", &daemonise], None)),
        ..LiveOptions::default()
    };
    let caller = forked(|| {
        let result = lab::live(&experiment, &options, &mut Unattended);
        if lab::allowed(result).is_none() { SKIPPED } else { 1 }
    });
    if !becomes_true(|| is_running(&marker)) {
        kill(caller, Signal::SIGKILL).expect("the caller is there");
        assert_eq!(exit_status(caller), SKIPPED, "the daemon never started");
        return;
    }
    let supervisors = children(caller.as_raw());
    let engines: Vec<i32> = supervisors.iter().flat_map(|pid| children(*pid)).collect();
    assert_eq!((supervisors.len(), engines.len()), (1, 1));

    kill(caller, Signal::SIGKILL).expect("the caller is there");
    waitpid(caller, None).expect("the caller has ended");
    assert!(becomes_true(|| !is_running(&marker)), "the daemon is still there");
    // The namespaces, and the devices in them, have disappeared with the processes, which were their only users.
    let gone = |pid: &i32| !fs::exists(format!("/proc/{pid}/ns")).unwrap_or(true);
    assert!(becomes_true(|| supervisors.iter().chain(&engines).all(gone)));
}

/// Caller that kills the engine's process.
struct Killer;

impl Control for Killer {
    fn progress(&mut self, _elapsed: Duration, _total: Duration) {
        for supervisor in children(std::process::id() as i32) {
            for engine in children(supervisor) {
                // The engine may have ended since it was listed, which the test would notice.
                kill(Pid::from_raw(engine), Signal::SIGKILL).unwrap_or_default();
            }
        }
    }

    fn interrupted(&mut self) -> bool {
        false
    }
}

#[test]
#[ignore = "soak: kills"]
fn the_engines_death_is_an_error_and_leaves_nothing() {
    let marker = format!("8640.{}", std::process::id());
    let experiment = fixed(ms(5), mbit(20), ms(60_000));
    let options =
        LiveOptions { program: Some(program(&["sleep", &marker], None)), ..LiveOptions::default() };
    // Fork, so that the run's processes are the only children.
    let caller = forked(|| {
        let result = lab::live(&experiment, &options, &mut Killer);
        let Some(result) = lab::allowed(result) else { return SKIPPED };
        assert!(matches!(result, Err(HostError::EngineDied { .. })), "{result:?}");
        assert!(becomes_true(|| !is_running(&marker)));
        assert_eq!(children(std::process::id() as i32), Vec::<i32>::new());
        0
    });
    assert!(matches!(exit_status(caller), 0 | SKIPPED));
}

/// Change permanently to the unprivileged user 65534.
fn drop_root() {
    let unprivileged = 65_534;
    setgroups(&[]).expect("root may");
    let (uid, gid) = (Uid::from_raw(unprivileged), Gid::from_raw(unprivileged));
    setresgid(gid, gid, gid).expect("root may");
    setresuid(uid, uid, uid).expect("root may");
}

#[test]
fn it_runs_without_root() {
    // The default device of an unprivileged user, and the one that every user can create.
    for device in [LiveDevice::Auto, LiveDevice::Packet] {
        let mut experiment = fixed(ms(10), mbit(20), ms(1000));
        experiment.device = device;
        experiment.flows.extend([tcp(0, End::From, "cubic", None), probe(1, ms(20))]);
        let child = forked(|| run_unprivileged(&experiment));
        assert!(matches!(exit_status(child), 0 | SKIPPED));
    }
}

fn run_unprivileged(experiment: &Experiment) -> i32 {
    if geteuid().is_root() {
        drop_root();
    }
    let Some(outcome) = lab::run(experiment) else { return SKIPPED };
    let summary = &outcome.data.summary;
    assert!(summary.flows[0].goodput_bps > 0, "{summary:?}");
    assert!(summary.probes[0].sent > 0 && summary.probes[0].rtt_p50_us >= Some(20_000));
    for count in outcome.packets {
        assert_eq!(count.enqueued, count.delivered + count.dropped, "{count:?}");
        assert_eq!(count.delivered, count.device_received, "{count:?}");
    }
    0
}

#[test]
fn a_system_that_forbids_namespaces_is_named() {
    let mut experiment = fixed(ms(10), mbit(20), ms(100));
    experiment.flows = vec![lab::tcp(0, End::From, "reno", None)];
    let child = forked(|| {
        if geteuid().is_root() {
            drop_root();
            nix::sys::prctl::set_dumpable(true).expect("always allowed");
        }
        // The limits of a new user namespace can be lowered without root.
        if unshare(CloneFlags::CLONE_NEWUSER).is_err()
            || fs::write("/proc/sys/user/max_user_namespaces", "0").is_err()
        {
            skyhop_needs::missing("namespaces", "their limit cannot be set");
            return SKIPPED;
        }
        let result = lab::live(&experiment, &LiveOptions::default(), &mut Unattended);
        let message = result.expect_err("no namespace can be made").to_string();
        assert!(message.contains("max_user_namespaces is 0"), "{message}");
        assert!(message.contains("sysctl -w user.max_user_namespaces"), "{message}");
        0
    });
    assert!(matches!(exit_status(child), 0 | SKIPPED));
}
