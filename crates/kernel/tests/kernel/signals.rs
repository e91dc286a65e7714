//! Test that an announcement reaches the connections in its scope, and no others.

use crate::lab;
use skyhop_model::PhaseKind;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use skyhop_cc::{Handover, Module};
use skyhop_kernel::{Scope, SignalMap, netns_cookie, register};

use crate::lab::{Connection, in_own_network};

/// Time in which a connection fills its path.
const WARM_UP: Duration = Duration::from_millis(1500);
const LEAD_NS: u64 = 300_000_000;
/// Time after the announced handover until which SatPipe drains, in ns; it then probes for 200 ms.
const DRAINED_NS: u64 = 100_000_000;
/// Window of BBR while draining, its minimum, in packets.
const DRAINED_CWND: u32 = 4;

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// Times, in ns, and congestion windows, in packets, of a bulk sender.
type Windows = Vec<(u64, u32)>;

/// Send in a new network namespace until `stop`; pass on the namespace's cookie first.
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

/// Run two connections in two namespaces and announce a handover to the first. Return both connections' windows, the
/// announced time, and the first one's cookie.
fn announce_to_one_of_two(cc: &str, signals: &SignalMap) -> (Windows, Windows, u64, u64) {
    let stop = AtomicBool::new(false);
    let (addressed_cookie, cookies): (Sender<u64>, Receiver<u64>) = mpsc::channel();
    let (other_cookie, _others): (Sender<u64>, Receiver<u64>) = mpsc::channel();
    thread::scope(|scope| {
        let addressed = scope.spawn(|| send_until(&stop, cc, addressed_cookie));
        let other = scope.spawn(|| send_until(&stop, cc, other_cookie));
        let addressed_scope = Scope { netns_cookie: cookies.recv().unwrap(), destination: None };
        thread::sleep(WARM_UP);
        let at_ns = now_ns() + LEAD_NS;
        let handover = Handover { at_ns, outage_ns: 0, error_ns: 0, kind: 0, valid: 1 };
        signals.announce(addressed_scope, &handover).unwrap();
        thread::sleep(Duration::from_nanos(LEAD_NS + 2 * DRAINED_NS));
        stop.store(true, Ordering::Relaxed);
        signals.withdraw(addressed_scope).unwrap();
        (addressed.join().unwrap(), other.join().unwrap(), at_ns, addressed_scope.netns_cookie)
    })
}

/// Smallest windows of the addressed connection and of the other while the first drains, and whether it reports the
/// drain phase; `None` where no module can be loaded.
fn addressed_and_other() -> Option<([Option<u32>; 2], bool)> {
    let satpipe = Module::find("satpipe").unwrap();
    let module = lab::unless_impossible(register(satpipe, &[]))?;
    let signals = module.signals().unwrap().unwrap();
    let phases = module.phases().unwrap();
    let (addressed, other, at_ns, cookie) = announce_to_one_of_two(module.kernel_name(), &signals);
    let until_ns = at_ns + DRAINED_NS;
    let events = phases.read().unwrap();
    assert!(events.iter().all(|event| event.netns_cookie == cookie), "{events:?}");
    let windows = [addressed, other].map(|windows| least(&windows, at_ns, until_ns));
    Some((windows, events.iter().any(|event| event.phase.kind == PhaseKind::Drain)))
}

/// Check only the other namespace, because on a busy machine the addressed connection may not drain either.
#[test]
fn no_other_namespace_drains() {
    addressed_and_other();
}

#[test]
#[ignore = "soak: measures time"]
fn only_the_addressed_namespace_drains() {
    let Some(([addressed, other], reported)) = addressed_and_other() else { return };
    assert!(addressed.is_some_and(|window| window <= DRAINED_CWND), "{addressed:?}");
    assert!(other.is_some_and(|window| window > DRAINED_CWND), "{other:?}");
    assert!(reported);
}
