//! An announcement reaches the connections it is for, and no others.

use crate::lab;
use skyhop_model::PhaseKind;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use skyhop_cc::{Handover, Module};
use skyhop_kernel::{Scope, SignalMap, hold, netns_cookie};

use crate::lab::{Connection, in_own_network};

/// How long a connection takes to fill its path.
const WARM_UP: Duration = Duration::from_millis(1500);
const LEAD_NS: u64 = 300_000_000;
/// SatPipe drains until 100 ms after the announced moment, and probes for 200 ms more.
const DRAINED_NS: u64 = 100_000_000;
/// BBR's smallest window, packets.
const DRAINED_CWND: u32 = 4;

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// Times and windows of a connection that sends as much as it can.
type Windows = Vec<(u64, u32)>;

/// Sends in a network namespace of its own until `stop`; tells its cookie first.
fn send_until(stop: &AtomicBool, cc: &str, cookie: Sender<u64>) -> Windows {
    let mut windows = Vec::new();
    in_own_network(|| {
        cookie.send(netns_cookie().unwrap()).unwrap();
        let connection = Connection::open(cc).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| connection.discard());
            scope.spawn(|| {
                let chunk = vec![0; 1 << 14];
                while !stop.load(Ordering::Relaxed) {
                    connection.writer().write_all(&chunk).unwrap();
                }
                connection.finish();
            });
            while !stop.load(Ordering::Relaxed) {
                windows.push((now_ns(), connection.cwnd().unwrap()));
                thread::sleep(Duration::from_millis(1));
            }
        });
    });
    windows
}

fn least(windows: &Windows, from_ns: u64, until_ns: u64) -> Option<u32> {
    let within = windows.iter().filter(|(at, _)| (from_ns..until_ns).contains(at));
    within.map(|(_, cwnd)| *cwnd).min()
}

/// One connection that is told, one in another namespace, and the moment that was announced.
fn tell_one_of_two(cc: &str, signals: &SignalMap) -> (Windows, Windows, u64, u64) {
    let stop = AtomicBool::new(false);
    let (told_cookie, cookies): (Sender<u64>, Receiver<u64>) = mpsc::channel();
    let (other_cookie, _others): (Sender<u64>, Receiver<u64>) = mpsc::channel();
    thread::scope(|scope| {
        let told = scope.spawn(|| send_until(&stop, cc, told_cookie));
        let other = scope.spawn(|| send_until(&stop, cc, other_cookie));
        let scope_of_told = Scope { netns_cookie: cookies.recv().unwrap(), destination: None };
        thread::sleep(WARM_UP);
        let at_ns = now_ns() + LEAD_NS;
        let handover = Handover { at_ns, outage_ns: 0, error_ns: 0, kind: 0, valid: 1 };
        signals.announce(scope_of_told, &handover).unwrap();
        thread::sleep(Duration::from_nanos(LEAD_NS + 2 * DRAINED_NS));
        stop.store(true, Ordering::Relaxed);
        signals.withdraw(scope_of_told).unwrap();
        (told.join().unwrap(), other.join().unwrap(), at_ns, scope_of_told.netns_cookie)
    })
}

/// Windows of the connection that was told and of the other while the first drains, and whether it
/// says that it drains; `None` where nothing can be loaded.
fn told_and_other() -> Option<([Option<u32>; 2], bool)> {
    let satpipe = Module::find("satpipe").unwrap();
    let held = lab::unless_impossible(hold(satpipe, &[]))?;
    let signals = held.signals().unwrap().unwrap();
    let phases = held.phases().unwrap();
    let (told, other, at_ns, cookie) = tell_one_of_two(held.kernel_name(), &signals);
    let until_ns = at_ns + DRAINED_NS;
    let said = phases.read().unwrap();
    assert!(said.iter().all(|told| told.netns_cookie == cookie), "{said:?}");
    let windows = [told, other].map(|windows| least(&windows, at_ns, until_ns));
    Some((windows, said.iter().any(|told| told.phase.kind == PhaseKind::Drain)))
}

/// A machine that has no time for the connections lets the one that is told not drain at all.
#[test]
fn no_other_namespace_says_that_it_drains() {
    told_and_other();
}

#[test]
#[ignore = "soak: measures time"]
fn only_the_namespace_that_is_told_drains() {
    let Some(([told, other], said)) = told_and_other() else { return };
    assert!(told.is_some_and(|window| window <= DRAINED_CWND), "{told:?}");
    assert!(other.is_some_and(|window| window > DRAINED_CWND), "{other:?}");
    assert!(said);
}
