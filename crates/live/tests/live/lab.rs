//! Test utilities: experiments built in code, and runs that record a skip if the system does not allow them.

use skyhop_model::{Dscp, End, LinuxLink, LiveDevice, PATH_LINK};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration as WallDuration;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use skyhop_app::{App, AppKind as _, Bulk, Probe, TcpOptions};
use skyhop_engine::{Control, Engine, EngineError, Unattended};
use skyhop_experiment::{Experiment, FlowPlan, LinkPlan, Route, Traffic};
use skyhop_host::{DeviceKind, HostError, Program};
use skyhop_link::{Limit, LinkConfig, LinkSchedule, QueueDiscipline};
use skyhop_live::{LiveEngine, LiveInfo, LiveOptions, PacketCount};
use skyhop_path::{Endpoint, PathTrace};
use skyhop_record::RunData;
use skyhop_units::{Bytes, Duration, Instant, Rate, Ratio};

/// Longest time that a test waits for a condition, even on a busy machine.
pub const TIMEOUT: WallDuration = WallDuration::from_secs(60);

pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

pub const fn mbit(n: u64) -> Rate {
    Rate::from_bits_per_second(n * 1_000_000)
}

/// Experiment over a fixed path without traffic: `delay` each way at `rate`, a queue of 1000 packets.
pub fn fixed(delay: Duration, rate: Rate, duration: Duration) -> Experiment {
    let link = LinkConfig {
        schedule: LinkSchedule::fixed(delay, rate, Ratio::ZERO),
        qdisc: QueueDiscipline::default(),
        queue: Limit::Packets(1000),
        seed: 1,
    };
    Experiment {
        network: None,
        force_size: false,
        scenario: serde_json::Value::Null,
        notes: Vec::new(),
        links: vec![LinkPlan {
            name: PATH_LINK.to_owned(),
            trace: PathTrace::fixed(["from", "to"].map(Endpoint::named), delay * 2, duration)
                .into(),
            forward: link.clone(),
            back: link,
            queues: Default::default(),
        }],
        announcements: Vec::new(),
        blind: None,
        flows: Vec::new(),
        tcp: TcpOptions::default(),
        changes: Vec::new(),
        duration,
        sample: ms(100),
        seed: 1,
        device: device(),
        linux_link: LinuxLink::Auto,
        cc_files: BTreeMap::new(),
    }
}

/// Device kind from `SKYHOP_TEST_DEVICE`, so that every test can run over each kind.
fn device() -> LiveDevice {
    match std::env::var("SKYHOP_TEST_DEVICE").as_deref() {
        Err(_) | Ok("auto") => LiveDevice::Auto,
        Ok("tun") => LiveDevice::Tun,
        Ok("packet") => LiveDevice::Packet,
        Ok(other) => panic!("SKYHOP_TEST_DEVICE is {other}: expected auto, tun or packet"),
    }
}

/// Device kinds that work here, or the one of `SKYHOP_TEST_DEVICE`, for tests of the devices' behaviour.
pub fn devices() -> Vec<LiveDevice> {
    match device() {
        LiveDevice::Auto if may_open_tun() => vec![LiveDevice::Tun, LiveDevice::Packet],
        LiveDevice::Auto => vec![LiveDevice::Packet],
        one => vec![one],
    }
}

fn may_open_tun() -> bool {
    let opened = fs::File::options().read(true).write(true).open("/dev/net/tun");
    opened.inspect_err(|error| skyhop_needs::missing("tun", error)).is_ok()
}

pub fn tcp(id: u32, from: End, cc: &str, bytes: Option<u64>) -> FlowPlan {
    let app = App::Bulk(Bulk { bytes: bytes.map(Bytes::new), read_rate: None });
    application(id, from, cc, app, TcpOptions::default())
}

/// Application from JSON, in the form of a scenario: a table with its `kind`.
pub fn app(json: &str) -> App {
    let mut keys: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(json).expect("a table");
    let kind = keys.remove("kind").expect("it has a kind");
    let kind = kind.as_str().expect("a name");
    let app: App =
        serde_json::from_value(serde_json::json!({ kind: keys })).expect("an application");
    app.check().expect("one that can be");
    app
}

/// TCP flow with an application whose client is at `from`.
pub fn application(id: u32, from: End, cc: &str, app: App, options: TcpOptions) -> FlowPlan {
    let (cc, parameters) = (cc.to_owned(), Default::default());
    flow(id, from, Traffic::Tcp { cc, app, options, parameters })
}

pub fn probe(id: u32, interval: Duration) -> FlowPlan {
    let app = App::Probe(Probe { interval, ..Probe::default() });
    flow(id, End::From, Traffic::Udp { app })
}

/// Flow over the path's link alone, for the whole run.
fn flow(id: u32, from: End, traffic: Traffic) -> FlowPlan {
    FlowPlan {
        id,
        from,
        start: Instant::START,
        stop: Instant::NEVER,
        routes: vec![Route { from: Instant::START, links: vec![0] }],
        sites: None,
        extra_rtt: Duration::ZERO,
        dscp: Dscp::default(),
        traffic,
    }
}

pub fn program(client: &[&str], server: Option<&str>) -> Program {
    Program {
        client: client.iter().map(|word| (*word).to_owned()).collect(),
        server: server.map(str::to_owned),
    }
}

/// Result of a run, with its recorded data.
#[derive(Debug)]
pub struct LiveOutcome {
    pub data: RunData,
    pub interrupted: bool,
    pub program_status: Option<i32>,
    pub device: DeviceKind,
    /// Packet counts forward, then back.
    pub packets: [PacketCount; 2],
}

/// Run an experiment as the command line does, but record it in memory.
pub fn live(
    experiment: &Experiment,
    options: &LiveOptions,
    control: &mut dyn Control,
) -> Result<LiveOutcome, HostError> {
    let mut data = RunData::default();
    let engine = LiveEngine { options: options.clone() };
    let ended = engine.run(experiment, &mut data, control).map_err(|error| match error {
        EngineError::Failed { reason, .. } => *reason.downcast::<HostError>().expect("its own"),
        error => HostError::Unsupported(error.to_string()),
    })?;
    let info: LiveInfo = serde_json::from_value(data.run.clone()).expect("run.json says it");
    Ok(LiveOutcome {
        interrupted: ended.interrupted,
        program_status: ended.program_status,
        device: info.device,
        packets: [info.packets.forward, info.packets.back],
        data,
    })
}

/// Run an experiment; `None`, with a recorded skip, if this system does not allow it.
pub fn run(experiment: &Experiment) -> Option<LiveOutcome> {
    run_with(experiment, &LiveOptions::default())
}

pub fn run_with(experiment: &Experiment, options: &LiveOptions) -> Option<LiveOutcome> {
    allowed(live(experiment, options, &mut Unattended))
        .map(|result| result.expect("the run succeeds"))
}

/// Convert the error that this system does not allow runs to `None`, with a recorded skip.
pub fn allowed<T>(result: Result<T, HostError>) -> Option<Result<T, HostError>> {
    match result {
        Err(
            error @ (HostError::NamespacesForbidden { .. } | HostError::DeviceUnavailable { .. }),
        ) => {
            skyhop_needs::missing("namespaces", error);
            None
        }
        result => Some(result),
    }
}

pub fn median(mut values: Vec<i64>) -> i64 {
    values.sort_unstable();
    values[values.len() / 2]
}

/// Process ids of this namespace, each with the fields of its stat file after the name.
pub fn processes() -> Vec<(i32, Vec<String>)> {
    let entries = fs::read_dir("/proc").expect("/proc can be read").flatten();
    entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let (_, rest) = stat.rsplit_once(") ")?;
            Some((pid, rest.split(' ').map(str::to_owned).collect()))
        })
        .collect()
}

/// Ids of a process's children.
pub fn children(parent: i32) -> Vec<i32> {
    let parent = parent.to_string();
    let of_this_parent = processes().into_iter().filter(|(_, stat)| stat.get(1) == Some(&parent));
    of_this_parent.map(|(pid, _)| pid).collect()
}

/// Wait until a condition holds; return whether it does within [`TIMEOUT`].
pub fn becomes_true(mut holds: impl FnMut() -> bool) -> bool {
    let start = std::time::Instant::now();
    while start.elapsed() < TIMEOUT {
        if holds() {
            return true;
        }
        std::thread::sleep(WallDuration::from_millis(20));
    }
    holds()
}

/// Exit status of a forked copy if this system does not allow runs.
pub const SKIPPED: i32 = 77;

/// Run `work` in a forked copy of this process, with its result as the exit status.
pub fn forked(work: impl FnOnce() -> i32) -> Pid {
    // SAFETY: the child runs `work` and leaves through _exit.
    match unsafe { fork() }.expect("this process can fork") {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // SAFETY: _exit never returns and runs no exit handlers of the parent.
            unsafe { libc::_exit(status.unwrap_or(101)) }
        }
    }
}

pub fn exit_status(child: Pid) -> i32 {
    match waitpid(child, None).expect("the child can be waited for") {
        WaitStatus::Exited(_, status) => status,
        other => panic!("the child ended with {other:?}"),
    }
}
