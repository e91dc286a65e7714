//! Execution of one run, inside the engine's process.

use skyhop_model::{End, LARGEST_PACKET};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::utsname::uname;
use skyhop_app::{TcpOptions, Transaction};
use skyhop_engine::Ended;
use skyhop_experiment::Experiment;
use skyhop_link::{Limit, LinkConfig};
use skyhop_record::{Recorder, RunConclusion};
use skyhop_units::{Bytes, Duration, Instant};
use tracing::{debug, info, warn};

use crate::announcer::RunningAnnouncer;
use crate::arrivals::Arrivals;
use crate::connections::Connections;
use crate::datapath::{Datapath, PumpParts, Topology};
use crate::info::{Directions, LiveInfo, PacketCount, Printed};
use crate::kernel_cc::LoadedModules;
use crate::message::{self, CallerSink, Message};
use crate::phases::PhaseLog;
use crate::pump::{MOST_LOSSES, PumpView};
use crate::sampler::Sampler;
use crate::timing::{Lateness, TimingRecorder, new_lateness, quantiles};
use crate::traffic::plan::TrafficPlan;
use crate::traffic::tcp::RunningTcp;
use crate::traffic::udp::RunningUdp;
use crate::traffic::{Addresses, Testbench, address};
use crate::{LiveOptions, Spin, hosts, summary, tc};
use skyhop_host::PeerRoute;
use skyhop_host::clock::{RunClock, Stop, sleep_until, wait};
use skyhop_host::default_cc;
use skyhop_host::device::{DeviceCount, DeviceKind};
use skyhop_host::error::{Context, HostError};
use skyhop_host::internet;
use skyhop_host::isolation::{DescriptorLimit, exit_now};
use skyhop_host::namespace::NetNamespace;
use skyhop_host::program::{self, Client, Reaper, Server};
use skyhop_host::socket::check_congestion_control;
use skyhop_policyd::DecisionServer;

/// Time from the creation of the run's clock to the clock's zero; threads start during it.
const LEAD: Duration = Duration::from_millis(50);
/// Interval at which orders, CPU steal and programs are polled.
const TICK: Duration = Duration::from_millis(20);
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// Time that the link may take to drain after the traffic has stopped, beyond queueing and propagation delay.
const DRAIN: Duration = Duration::from_secs(2);
/// Upper limit of the drain time.
const LONGEST_DRAIN: Duration = Duration::from_secs(20);
/// Time for which the link must stay empty to count as drained: the ends may still reply to the last packets.
const QUIET: Duration = Duration::from_millis(20);

/// Order pipe of the caller: a byte requests the end of the run.
#[derive(Debug)]
pub(crate) struct Orders {
    pipe: OwnedFd,
}

impl Orders {
    pub(crate) fn new(pipe: OwnedFd) -> Self {
        Self { pipe }
    }

    /// Whether the caller has requested the end of the run; exits the process if the caller is gone.
    fn stop_asked(&self) -> Result<bool, HostError> {
        let mut ready = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::ZERO) {
            Ok(0) | Err(Errno::EINTR) => return Ok(false),
            woken => woken.context("cannot look for orders")?,
        };
        match nix::unistd::read(&self.pipe, &mut [0]) {
            Ok(0) => exit_now(1),
            read => read.context("cannot read orders").map(|_| true),
        }
    }
}

/// Execute the run and record it; called once, in the engine's process.
pub(crate) fn run(
    experiment: &Experiment,
    options: &LiveOptions,
    orders: &Orders,
    to_caller: &File,
) -> Result<Ended, HostError> {
    let mut sink = CallerSink(to_caller);
    let mut recorder = Recorder::begin(experiment, options.engine_name(), &mut sink)
        .context("cannot record the run")?;
    let mut modules = LoadedModules::default();
    let plan = TrafficPlan::new(experiment, options.program.is_some(), &mut modules)?;
    let default_cc = modules.kernel_name(&options.default_cc, &BTreeMap::new())?;
    log_links(experiment);
    let limit = DescriptorLimit::raise()?;
    let choice = tc::choose_here(experiment, options)?;
    if choice.tc.as_ref().is_some_and(|plan| plan.marks_flows) {
        recorder.disable_mark_counts();
    }
    let mut ends = Ends::create(experiment, options, choice)?;
    ends.choose_congestion_controls(&plan, &default_cc, options)?;
    if !experiment.announcements.is_empty() || experiment.blind.is_some() {
        ends.warnings.extend(modules.announcement_warnings());
    }
    let far_end = options.internet.then(|| internet::join(&ends.namespaces[1]));
    let _internet = far_end.transpose()?;
    let mut run = Run::start(experiment, options, plan, ends, &mut modules, limit, recorder)?;
    let end = run.watch(orders, to_caller)?;
    run.finish(end)
}

/// Namespaces of the two ends of the path, `from` then `to`, and the topology between them.
struct Ends {
    namespaces: [Arc<NetNamespace>; 2],
    topology: Topology,
    choice: tc::Choice,
    tcp: TcpOptions,
    warnings: Vec<String>,
}

impl Ends {
    fn create(
        experiment: &Experiment,
        options: &LiveOptions,
        choice: tc::Choice,
    ) -> Result<Self, HostError> {
        let with_program = options.program.is_some();
        let tcp = hosts::options(experiment, with_program)
            .map_err(|error| HostError::Unsupported(error.to_string()))?;
        let settings = hosts::settings(&tcp, with_program);
        let [from, to] = [NetNamespace::create()?, NetNamespace::create()?];
        let mut warnings = from.tune(&settings)?;
        warnings.extend(to.tune(&settings)?);
        // Both ends usually give the same warnings.
        warnings.sort();
        warnings.dedup();
        let asked = experiment.flows.iter().filter_map(|flow| flow.tcp_options());
        let asked = asked.filter(|_| !with_program).chain([&tcp]);
        warnings.extend(hosts::kernel_option_warning(asked, &release()?)?);
        // Packet sockets with rings are read without system calls, which dominate the cost in a guest.
        let in_guest = options.guest.is_some();
        let preferred = if in_guest { DeviceKind::Packet } else { DeviceKind::Tun };
        let topology = Topology::create(experiment, [&from, &to], preferred, choice.tc.as_ref())?;
        info!(device = ?topology.kind(), "both ends of the path created");
        for (namespace, end) in [(&from, End::From), (&to, End::To)] {
            hosts::set_initial_cwnd(namespace, end, &tcp)?;
        }
        Ok(Self { topology, choice, namespaces: [Arc::new(from), Arc::new(to)], tcp, warnings })
    }

    /// Check the congestion controls of all flows, and set the default congestion control for programs.
    fn choose_congestion_controls(
        &mut self,
        plan: &TrafficPlan,
        default_cc: &str,
        options: &LiveOptions,
    ) -> Result<(), HostError> {
        for flow in &plan.flows {
            self.namespaces[0].inside(|| check_congestion_control(&flow.kernel_cc))?;
        }
        self.namespaces[0].inside(|| check_congestion_control(default_cc))?;
        if options.program.is_none() {
            return Ok(());
        }
        for (namespace, end) in self.namespaces.iter().zip([End::From, End::To]) {
            let route = hosts::route(end, Addresses::Path, &self.tcp);
            let warning = namespace.inside(|| default_cc::set(default_cc, route))?;
            if options.internet && end == End::From {
                let cc = warning.is_some().then_some(default_cc);
                namespace.inside(|| {
                    let route = PeerRoute { cc, ..route };
                    route.set_as_default().context("cannot make the path the way to everywhere")
                })?;
            }
            self.warnings.extend(warning.filter(|warning| !self.warnings.contains(warning)));
        }
        Ok(())
    }
}

/// State of a run in progress.
struct Run<'a> {
    experiment: &'a Experiment,
    options: &'a LiveOptions,
    recorder: Recorder<'a>,
    ends: Ends,
    testbench: Testbench,
    pump_stop: Arc<Stop>,
    datapath: Datapath,
    flows: Vec<RunningTcp>,
    announcer: RunningAnnouncer,
    phases: PhaseLog,
    decision_servers: Vec<DecisionServer>,
    /// Probe that compares measured RTTs with the scheduled ones; `None` with Linux's disciplines,
    /// which do not report scheduled RTTs.
    timing_probe: Option<RunningUdp>,
    udp_flows: Vec<RunningUdp>,
    sampler: Sampler,
    timing: TimingRecorder,
    reaper: Reaper,
    server: Option<Server>,
    client: Option<Client>,
    spin: bool,
    progress_at: Instant,
    printed: Printed,
}

/// Time and cause of a run's end.
struct RunEnd {
    at: Instant,
    interrupted: bool,
    program_status: Option<i32>,
}

impl<'a> Run<'a> {
    fn start(
        experiment: &'a Experiment,
        options: &'a LiveOptions,
        plan: TrafficPlan,
        mut ends: Ends,
        modules: &mut LoadedModules,
        limit: DescriptorLimit,
        recorder: Recorder<'a>,
    ) -> Result<Self, HostError> {
        let mut reaper = Reaper::default();
        let [from, to] = ends.namespaces.clone();
        let program = options.program.as_ref();
        let server_command = program.and_then(|program| program.server.as_deref());
        let server = server_command
            .map(|command| Server::start(command, &to, address(End::To), limit, &mut reaper))
            .transpose()?;

        let clock = RunClock::starting_in(LEAD)?;
        let (stop, close) = (Arc::new(Stop::new()?), Arc::new(Stop::new()?));
        let pump_stop = Arc::new(Stop::new()?);
        let spin = spins(options.spin);
        let flow_ids: Arc<[Option<u32>]> = plan.flow_ids().into();
        let arrivals = Arc::new(Arrivals::default());
        let parts = PumpParts {
            experiment,
            clock,
            is_virtual: options.guest.is_some(),
            spin,
            stop: Arc::clone(&pump_stop),
            flow_ids: Arc::clone(&flow_ids),
            arrivals: Arc::clone(&arrivals),
        };
        let tc = ends.choice.tc.take();
        let probes = tc.is_none().then_some(plan.timing_probe);
        let timing = TimingRecorder::new()?;
        let datapath = Datapath::start(&ends.topology, tc, &parts)?;

        let testbench = Testbench { from: Arc::clone(&from), to, clock, stop, close };
        let announcer = RunningAnnouncer::start(
            experiment,
            modules.signal_maps()?,
            &ends.namespaces,
            clock,
            &testbench.stop,
            &arrivals,
        )?;
        let timing_probe = probes.map(|plan| RunningUdp::start(plan, &testbench)).transpose()?;
        let udp_flows = plan.udp_flows.into_iter().map(|flow| RunningUdp::start(flow, &testbench));
        let udp_flows = udp_flows.collect::<Result<Vec<_>, _>>()?;
        let flows = plan.flows.into_iter().map(|flow| RunningTcp::start(flow, &testbench));
        let flows = flows.collect::<Result<Vec<_>, _>>()?;
        let connections = match program {
            Some(_) => Some(Connections::watch([&from, &testbench.to], first_free_id(experiment))?),
            None => None,
        };
        let (topology, views) = (ends.topology.clone(), datapath.views());
        let sampler = Sampler::new(experiment.sample, &flows, connections, topology, views);

        sleep_until(clock, Instant::START, &testbench.stop)?;
        info!(flows = experiment.flows.len(), duration = %experiment.duration, "traffic starts");
        let client = program
            .map(|program| {
                program::start_client(&program.client, &from, address(End::To), limit, &mut reaper)
            })
            .transpose()?;
        let progress_at = Instant::START;
        Ok(Self {
            experiment,
            options,
            recorder,
            ends,
            testbench,
            pump_stop,
            datapath,
            flows,
            announcer,
            phases: PhaseLog::new(modules.phase_readers()?, clock, flow_ids),
            decision_servers: modules.take_decision_servers(),
            timing_probe,
            udp_flows,
            sampler,
            timing,
            reaper,
            server,
            client,
            spin,
            progress_at,
            printed: Printed::default(),
        })
    }

    /// Sample and report progress until the run ends.
    fn watch(&mut self, orders: &Orders, to_caller: &File) -> Result<RunEnd, HostError> {
        let clock = self.testbench.clock;
        let scheduled_end = Instant::START + self.experiment.duration;
        loop {
            let now = clock.now();
            let program_status = match &self.client {
                Some(client) => client.status(&mut self.reaper)?,
                None => None,
            };
            let over = self.client.is_none() && now >= scheduled_end;
            let interrupted = orders.stop_asked()?;
            if over || interrupted || program_status.is_some() || self.has_failed() {
                let at = if over { scheduled_end } else { now };
                info!(%at, interrupted, program_status, "traffic stops");
                return Ok(RunEnd { at, interrupted, program_status });
            }
            self.sampler.tick(now, &mut self.recorder)?;
            self.phases.tick(&mut self.recorder)?;
            self.timing.tick(now, self.datapath.lateness())?;
            self.report_progress(now, to_caller)?;
            let mut next = (now + TICK).min(self.sampler.next());
            if self.client.is_none() {
                next = next.min(scheduled_end);
            }
            wait(clock, next, &self.testbench.stop, None)?;
        }
    }

    fn report_progress(&mut self, now: Instant, to_caller: &File) -> Result<(), HostError> {
        if now < self.progress_at {
            return Ok(());
        }
        self.progress_at = now + PROGRESS_INTERVAL;
        message::send(to_caller, &Message::Progress { elapsed_ns: now.as_nanos() })
    }

    /// Whether a thread has ended early, which happens only on errors.
    fn has_failed(&self) -> bool {
        // A flow that has not started yet ends when `stop` is set, which is not an error.
        let stopping = self.testbench.stop.is_set();
        let flow_failed = |flow: &RunningTcp| !stopping && flow.has_failed();
        self.datapath.has_ended() || self.flows.iter().any(flow_failed)
    }

    /// Stop traffic, drain the link, stop the datapath, and record the results.
    fn finish(mut self, end: RunEnd) -> Result<Ended, HostError> {
        self.testbench.stop.set()?;
        if self.client.is_some() {
            // Data that the client sends while it is being terminated is not part of the run.
            self.sampler.sample(end.at, &mut self.recorder)?;
        }
        if let Some(client) = self.client.as_ref().filter(|_| end.program_status.is_none()) {
            program::terminate_client(client, &mut self.reaper)?;
        }
        if let Some(server) = self.server.take() {
            self.printed.server = server.end(&mut self.reaper)?;
        }
        self.phases.tick(&mut self.recorder)?;
        while !self.has_failed() && !self.flows.iter().all(RunningTcp::sender_has_ended) {
            thread::sleep(std::time::Duration::from_millis(1));
        }
        match self.client.take() {
            Some(client) => self.printed.client = client.printed()?,
            None => self.sampler.sample(end.at, &mut self.recorder)?,
        }
        self.drain(end.interrupted)?;
        self.testbench.close.set()?;
        self.pump_stop.set()?;
        self.timing.finish(self.datapath.lateness())?;
        self.conclude(end)
    }

    /// Wait until the link is empty, so that every packet is counted as delivered or dropped.
    fn drain(&self, interrupted: bool) -> Result<(), HostError> {
        let clock = self.testbench.clock;
        let drain_time = if interrupted { DRAIN } else { longest_drain(self.experiment) };
        let until = clock.now() + drain_time;
        let mut empty_since = None;
        while clock.now() < until && !self.has_failed() {
            let empty = self.datapath.states()?.iter().all(|state| state.idle);
            let since = *empty_since.get_or_insert(clock.now());
            if !empty {
                empty_since = None;
            } else if clock.now().saturating_since(since) >= QUIET {
                debug!(at = %clock.now(), "links are empty");
                return Ok(());
            }
            thread::sleep(std::time::Duration::from_millis(2));
        }
        warn!(at = %clock.now(), limit = %drain_time, "links are not empty at the end of the run");
        Ok(())
    }

    /// Join all threads and record their results.
    fn conclude(self, end: RunEnd) -> Result<Ended, HostError> {
        let Self {
            experiment,
            options,
            ends,
            datapath,
            flows,
            timing_probe,
            udp_flows,
            timing,
            printed,
            ..
        } = self;
        let mut recorder = self.recorder;
        let found = self.announcer.join()?;
        found.rows.into_iter().for_each(|row| recorder.event(row));
        datapath.states()?;
        let views = datapath.views().map(Arc::clone);
        let sojourns = datapath.join()?;
        let probed = timing_probe.map(|probe| probe.join(&sojourns)).transpose()?;
        let rtt_excess_us = quantiles(&rtt_excess(&probed.unwrap_or_default())?);
        let lateness_us = quantiles(&timing.all);
        let mut warnings = ends.warnings;
        warnings.extend(ends.topology.warnings());
        warnings.extend(summary::lateness_warning(lateness_us.as_ref(), rtt_excess_us.as_ref()));
        warnings.extend(path_exceeded_warning(&end, experiment));
        warnings.extend(skyhop_engine::warnings(experiment));
        if ends.topology.lists_losses() {
            warnings.extend(unlisted_losses_warning(self.sampler.counted_losses()));
        }
        warnings.extend(undelivered_warning(&views));
        warnings.extend(self.decision_servers.into_iter().flat_map(DecisionServer::warnings));
        warnings.into_iter().for_each(|warning| recorder.warn(warning));
        for flow in udp_flows {
            let id = flow.plan.id;
            for (one, scheduled) in flow.join(&sojourns)? {
                recorder.transaction(id, &one, scheduled);
            }
        }
        for flow in flows {
            let flow = flow.join()?;
            let (plan, flow_end) = (&flow.plan, flow.view.end());
            if plan.start < end.at {
                let warning = flow_end.and_then(|flow_end| flow_end.warning(plan.id));
                warning.into_iter().for_each(|warning| recorder.warn(warning));
                recorder.flow_ended(&summary::flow_end(plan, flow_end, end.at));
            }
        }
        self.sampler.record_results(&mut recorder);
        if let Some(connections) = self.sampler.into_connections() {
            connections.conclude(end.at, &mut recorder)?;
        }
        let [forward, back] = packet_counts(&views, &ends.topology)?;
        let program = options.program.clone();
        let own = LiveInfo {
            device: ends.topology.kind(),
            link: options.guest.is_some().then(|| ends.topology.link()),
            link_because: ends.choice.against,
            default_cc: program.is_some().then(|| options.default_cc.clone()),
            internet: options.internet,
            guest: options.guest.clone(),
            printed: program.is_some().then_some(printed),
            program,
            program_status: end.program_status,
            timing: timing.conclude(self.spin)?,
            packets: Directions { forward, back },
        };
        let RunEnd { at, interrupted, program_status } = end;
        let ending = RunConclusion {
            wall_s: at.saturating_since(Instant::START).as_secs_f64(),
            kernel: Some(kernel()?),
            grid: found.grid.as_ref(),
            lateness_us,
            rtt_excess_us,
            ..RunConclusion::new(at, interrupted, own)
        };
        recorder.finish(ending).context("cannot record the run")?;
        Ok(Ended { at, interrupted, program_status })
    }
}

fn log_links(experiment: &Experiment) {
    for link in &experiment.links {
        for (direction, config) in [("forward", &link.forward), ("back", &link.back)] {
            let (qdisc, queue) = (config.qdisc.name(), &config.queue);
            info!(link = link.name, direction, qdisc, %queue, "queue discipline");
        }
    }
}

/// Smallest id above those of all flows of the experiment.
fn first_free_id(experiment: &Experiment) -> u32 {
    experiment.flows.iter().map(|flow| flow.id + 1).max().unwrap_or(0)
}

/// Time in which full queues of both directions drain and their packets arrive, plus [`DRAIN`].
fn longest_drain(experiment: &Experiment) -> Duration {
    let end = Instant::START + experiment.duration;
    let one_way = |config: &LinkConfig| {
        let queue = match config.queue {
            Limit::Bytes(bytes) => bytes,
            Limit::Packets(packets) => Bytes::new(packets * LARGEST_PACKET.as_u64()),
        };
        config.schedule.rate_at(end).transmit_time(queue) + config.schedule.delay_at(end)
    };
    let links = experiment.links.iter().map(|link| one_way(&link.forward) + one_way(&link.back));
    let own = experiment.flows.iter().map(|flow| flow.extra_rtt).max().unwrap_or(Duration::ZERO);
    (DRAIN + links.sum::<Duration>() + own).min(LONGEST_DRAIN)
}

/// Warning about losses beyond the first [`MOST_LOSSES`], which are counted but not listed.
fn unlisted_losses_warning(counted: [u64; 2]) -> Option<String> {
    let most = counted.into_iter().max().filter(|most| *most > MOST_LOSSES as u64)?;
    Some(format!("events.parquet lists the first {MOST_LOSSES} of {most} losses in a direction"))
}

/// Warning about packets that were still in the link at the end.
fn undelivered_warning(views: &[Arc<PumpView>; 2]) -> Option<String> {
    let inside: u64 = views.iter().map(|view| view.state().inside()).sum();
    (inside > 0).then(|| {
        format!(
            "{inside} packets were still in the link at the end; probes among them count as lost"
        )
    })
}

/// Distribution of the timing probe's RTT minus the RTT that the links scheduled.
fn rtt_excess(timing_probe: &[(Transaction, Option<Duration>)]) -> Result<Lateness, HostError> {
    let mut excess = new_lateness()?;
    let back = timing_probe.iter().filter_map(|(packet, scheduled)| packet.took.zip(*scheduled));
    for (rtt, scheduled) in back {
        excess.saturating_record(rtt.saturating_sub(scheduled).as_nanos());
    }
    Ok(excess)
}

/// Warning about a program that ran longer than the path was computed for.
fn path_exceeded_warning(end: &RunEnd, experiment: &Experiment) -> Option<String> {
    let elapsed = end.at.saturating_since(Instant::START);
    let known = Duration::from_nanos(experiment.path().header.duration_ns);
    let is_over = elapsed > known.max(experiment.duration) && experiment.path().frames.len() > 1;
    is_over.then(|| {
        format!(
            "the program ran for {:.1} s, but the path was computed for {known}; after that the link kept its last \
             state: set run.duration to at least the program's run time",
            elapsed.as_secs_f64(),
        )
    })
}

fn spins(spin: Spin) -> bool {
    match spin {
        Spin::On => true,
        Spin::Off => false,
        // On one core the busy wait would take CPU time from the endpoints.
        Spin::Auto => thread::available_parallelism().is_ok_and(|cores| cores.get() >= 2),
    }
}

fn packet_counts(
    views: &[Arc<PumpView>; 2],
    topology: &Topology,
) -> Result<[PacketCount; 2], HostError> {
    let [from, to] = topology.counts()?;
    let count = |view: &PumpView, sender: DeviceCount, receiver: DeviceCount| {
        let state = view.state();
        PacketCount {
            device_sent: if topology.counts_packets() { sender.sent } else { state.entered },
            device_drops: sender.send_drops,
            enqueued: state.entered,
            dropped: state.lost(),
            inside: state.inside(),
            delivered: state.delivered,
            refused: state.refused,
            device_received: receiver.received,
            udp_sent: state.udp_entered,
            udp_delivered: state.udp_delivered,
        }
    };
    Ok([count(&views[0], from, to), count(&views[1], to, from)])
}

fn kernel() -> Result<String, HostError> {
    let name = uname().context("cannot read the kernel's name")?;
    Ok(format!("{} {}", name.sysname().to_string_lossy(), release()?))
}

fn release() -> Result<String, HostError> {
    let name = uname().context("cannot read the kernel's release")?;
    Ok(name.release().to_string_lossy().into_owned())
}
