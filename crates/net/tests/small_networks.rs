//! Random small networks: the same as a slow reference, the same on any number of threads, and no packet unaccounted
//! for.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use proptest::prelude::*;
use skyhop_link::{
    Background, DelayPiece, Headway, Limit, Line, LineLoad, LinkConfig, LinkSchedule, NO_NODE,
    Packet, Piece, PlainLink, QueueDiscipline, Via,
};
use skyhop_model::LossReason;
use skyhop_net::{
    Air, DOWN, Downlink, Hosts, Laser, Layout, NO_ROUTE, NO_SATELLITE, Network, Port, Routed,
    Routes, Uplinks, View, Views,
};
use skyhop_units::{Bytes, Duration, Instant, Rate, Ratio};

const MS: u64 = 1_000_000;
/// Duration of a step, and number of steps.
const STEP: u64 = 20 * MS;
const STEPS: u64 = 10;
/// Size on the wire of all packets: a packet takes 1 ms at 12 Mbit/s.
const SIZE: Bytes = Bytes::new(1_500);

/// A packet of the test: its number, the site that it goes to, and its headway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Message {
    number: u32,
    to: u32,
    headway: Headway,
}

impl Routed for Message {
    fn destination(&self) -> u32 {
        self.to
    }

    fn headway(&self) -> Headway {
        self.headway
    }

    fn set_headway(&mut self, headway: Headway) {
        self.headway = headway;
    }
}

/// Packets that sites send at given times, and the packets that have arrived.
#[derive(Debug, Default, Clone)]
struct Sites {
    /// Time in ns, site, packet; in the order of time.
    sends: VecDeque<(u64, u32, Message)>,
    arrived: Vec<(u64, Message)>,
}

impl Hosts<Message> for Sites {
    fn next(&self) -> Option<Instant> {
        self.sends.front().map(|(at, ..)| Instant::from_nanos(*at))
    }

    fn visit(&mut self, now: Instant, network: &mut impl Uplinks<Message>) {
        while let Some(&(at, site, message)) = self.sends.front()
            && at <= now.as_nanos()
        {
            self.sends.pop_front();
            network.send(site, now, Packet::new(SIZE, message));
        }
    }

    fn arrive(&mut self, packet: Packet<Message>, now: Instant, _: &mut impl Uplinks<Message>) {
        self.arrived.push((now.as_nanos(), packet.payload));
    }
}

/// The network of a test case.
#[derive(Debug, Clone)]
struct Case {
    layout: Layout,
    views: Vec<View<Tables>>,
    sites: Sites,
}

/// Next hops of a step: those towards site 0, then those towards site 1, ….
#[derive(Debug, Clone)]
struct Tables {
    ports: Vec<Vec<Port>>,
    up: Vec<Vec<u32>>,
}

impl Routes for Tables {
    fn port(&self, satellite: u32, destination: u32, _: u32) -> Port {
        self.ports[destination as usize][satellite as usize]
    }

    fn up(&self, site: u32, destination: u32, _: u32) -> u32 {
        self.up[destination as usize][site as usize]
    }
}

/// Views of the steps that follow.
struct Following(std::vec::IntoIter<View<Tables>>);

impl Views for Following {
    type Routes = Tables;

    fn advance(&mut self, view: &mut View<Tables>) {
        *view = self.0.next().expect("there is a view of each step");
    }
}

fn device(delay_ns: u64, mbits: u64, queue: u64) -> LinkConfig {
    let rate = Rate::from_bits_per_second(mbits * 1_000_000);
    LinkConfig {
        schedule: LinkSchedule::fixed(Duration::from_nanos(delay_ns), rate, Ratio::ZERO),
        qdisc: QueueDiscipline::default(),
        queue: Limit::Packets(queue),
        seed: 1,
    }
}

/// The device with a share of its rate as background, given in tenths, of which a third comes over each of two lines; none
/// if it is zero or nearly all.
fn shared(mut config: LinkConfig, tenths: u64, from: [u32; 2]) -> LinkConfig {
    let rate = config.schedule.rate[0].value;
    let share = |of: u64| Rate::from_bits_per_second(rate.bits_per_second() * tenths / 10 / of);
    let line = |from| {
        let load = LineLoad { here: share(3), all: share(2) };
        Line { from, rate, load: vec![Piece { from: Instant::START, value: load }] }
    };
    config.schedule.background = (1..9).contains(&tenths).then(|| {
        Box::new(Background {
            load: vec![Piece { from: Instant::START, value: share(1) }],
            packet: SIZE,
            burst: tenths as u32 % 3,
            lines: from.map(line).into(),
        })
    });
    config
}

/// A laser whose delay changes during the run.
fn laser(from: u32, to: u32, [first_ns, last_ns]: [u64; 2], mbits: u64, queue: u64) -> Laser {
    let mut config = device(first_ns, mbits, queue);
    let piece = |at, first, last| DelayPiece {
        from: Instant::from_nanos(at),
        delay: Duration::from_nanos(first),
        delay_at_end: Duration::from_nanos(last),
        new_route: false,
    };
    let end = STEP * STEPS / 2;
    config.schedule.delay = vec![piece(0, first_ns, last_ns), piece(end, last_ns, last_ns)];
    Laser { from, to, config }
}

prop_compose! {
    /// A ring of satellites with random routes, views and packets.
    fn cases()(satellites in 2_u32..7, sites in 2_u32..5)(
        delays in prop::collection::vec(prop::array::uniform2(2 * MS..9 * MS), 2 * satellites as usize),
        rates in prop::collection::vec(prop::sample::select(vec![3_u64, 6, 12, 24]), 32),
        queues in prop::collection::vec(1_u64..6, 32),
        seen in prop::collection::vec(
            prop::collection::vec(prop::bool::weighted(0.7), (satellites * sites) as usize), STEPS as usize + 1,
        ),
        air in prop::collection::vec((4_u64..9).prop_map(|half_ms| half_ms * MS / 2), (satellites * sites) as usize * (STEPS as usize + 1)),
        ports in prop::collection::vec(0_u8..12, (satellites * sites) as usize * STEPS as usize),
        ups in prop::collection::vec(0_usize..8, (sites * sites) as usize * STEPS as usize),
        sends in prop::collection::vec(
            ((0..STEP * STEPS * 3 / 4 / MS).prop_map(|ms| ms * MS), 0..sites, 0..sites), 0..150,
        ),
        loads in prop::collection::vec(0_u64..24, 32),
        kinds in prop::collection::vec(0_u8..4, sites as usize),
        fibres in prop::collection::vec((0_u64..8).prop_map(|half_ms| half_ms * MS / 2), (sites * sites) as usize),
        satellites in Just(satellites), sites in Just(sites),
    ) -> Case {
        let count = satellites as usize;
        let mut lasers = Vec::new();
        for from in 0..satellites {
            for to in [(from + 1) % satellites, (from + satellites - 1) % satellites] {
                let number = lasers.len();
                let [delay, rate, queue] = [number % delays.len(), number % 32, (number * 7) % 32];
                let mut laser = laser(from, to, delays[delay], rates[rate], queues[queue]);
                let before = (2 * from + satellites - to) % satellites;
                laser.config = shared(laser.config, loads[rate], [before, satellites]);
                lasers.push(laser);
            }
        }
        lasers.sort_by_key(|laser| (laser.from, laser.to));
        lasers.dedup_by_key(|laser| (laser.from, laser.to));
        let lasers_of = lasers.iter().filter(|laser| laser.from == 0).count() as u8;
        let pair = |satellite: usize, site: usize| site * count + satellite;
        let is_behind = |site: usize| site > 0 && kinds[site] == 3;
        let views = (0..STEPS as usize).map(|step| {
            let in_view = |site: usize| -> Vec<usize> {
                (0..count).filter(|satellite| seen[step][pair(*satellite, site)]).collect()
            };
            // A site behind others has the satellites of the others, each over one of those that see it.
            let antennas = |site: usize| -> Vec<(usize, usize)> {
                if !is_behind(site) {
                    return in_view(site).into_iter().map(|satellite| (satellite, site)).collect();
                }
                let antenna = |satellite: usize| {
                    let all = (0..sites as usize).map(|n| (n + satellite) % sites as usize);
                    all.filter(|n| !is_behind(*n)).find(|n| seen[step][pair(satellite, *n)])
                };
                (0..count).filter_map(|satellite| Some((satellite, antenna(satellite)?))).collect()
            };
            let of_site = |site: usize| -> Vec<Air> {
                antennas(site).into_iter().map(|(satellite, antenna)| {
                    let place = |step: usize| {
                        Duration::from_nanos(air[step * count * sites as usize + pair(satellite, antenna)])
                    };
                    Air {
                        satellite: satellite as u32,
                        antenna: antenna as u32,
                        fibre: if antenna == site { Duration::ZERO } else {
                            Duration::from_nanos(fibres[site * sites as usize + antenna])
                        },
                        delay: [place(step), place(step + 1)],
                        sets: !seen[step + 1][pair(satellite, antenna)],
                    }
                }).collect()
            };
            let port = |site: usize, satellite: usize| {
                let drawn = ports[(step * sites as usize + site) * count + satellite];
                match drawn {
                    0 => NO_ROUTE,
                    1..6 if antennas(site).iter().any(|(own, _)| *own == satellite) => DOWN,
                    other => other % lasers_of,
                }
            };
            let up = |to: usize, from: usize| {
                let choices: Vec<usize> = antennas(from).into_iter().map(|(satellite, _)| satellite).collect();
                let drawn = ups[(step * sites as usize + to) * sites as usize + from];
                if choices.is_empty() { NO_SATELLITE } else { choices[drawn % choices.len()] as u32 }
            };
            View {
                from: Instant::from_nanos(step as u64 * STEP),
                until: Instant::from_nanos((step as u64 + 1) * STEP),
                routes: Tables {
                    ports: (0..sites as usize).map(|site| (0..count).map(|s| port(site, s)).collect()).collect(),
                    up: (0..sites as usize).map(|to| (0..sites as usize).map(|from| up(to, from)).collect()).collect(),
                },
                air: (0..sites as usize).map(of_site).collect(),
            }
        }).collect();
        let mut sends = sends;
        sends.sort();
        let sends = (0..).zip(sends).map(|(number, (at, site, to))| (at, site, Message { number, to, headway: Headway::UNKNOWN }));
        Case {
            layout: Layout {
                satellites, sites, lasers,
                down: [0, 7].map(|more| (0..count).map(|s| {
                    let from = [(s as u32 + 1) % satellites, satellites + 1];
                    shared(device(0, rates[s + more], queues[s]), loads[s + more], from)
                }).collect()).into(),
                downlinks: kinds.iter().enumerate().map(|(site, kind)| match kind {
                    2 => Downlink::Own(Box::new(device(MS, rates[20 + site], queues[20 + site]))),
                    group => Downlink::Shared(u32::from(group % 2)),
                }).collect(),
                is_behind: (0..sites as usize).map(is_behind).collect(),
                up: (0..sites as usize).map(|s| {
                    shared(device(0, rates[31 - s], queues[31 - s]), loads[31 - s], [0, NO_NODE])
                }).collect(),
            },
            views,
            sites: Sites { sends: sends.collect(), arrived: Vec::new() },
        }
    }
}

/// Result of a run: arrivals, losses by packet with time and reason, packets that are still under way.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    arrived: Vec<(u64, Message)>,
    lost: BTreeMap<Message, (u64, LossReason)>,
    crossings: u64,
}

fn run(case: &Case, threads: usize) -> (Outcome, u64) {
    let mut views = case.views.clone().into_iter();
    let first = views.next().unwrap();
    let layout = Arc::new(case.layout.clone());
    let hosts = case.sites.clone();
    let mut network = Network::new(layout, hosts, (first, Following(views)), threads).unwrap();
    let mut lost = BTreeMap::new();
    // Some calls end within a step, others at its end.
    for until in (1..STEP * STEPS).step_by(7_777_777).chain([STEP * STEPS - 1]) {
        network.run_until(Instant::from_nanos(until));
        for one in network.take_lost() {
            let before =
                lost.insert(one.drop.packet.payload, (one.drop.at.as_nanos(), one.drop.reason));
            assert_eq!(before, None, "a packet is lost once");
        }
    }
    let stats = network.stats();
    let inside: u64 = stats.iter().map(|one| one.backlog_packets + one.underway_packets).sum();
    let inside = inside + network.in_air();
    let crossings = network.crossings();
    let arrived = std::mem::take(&mut network.hosts_mut().arrived);
    (Outcome { arrived, lost, crossings }, inside)
}

/// Slow reference: one queue of events, in which every packet has its own.
struct Reference<'c> {
    case: &'c Case,
    /// Time, component, number of the event; then what happens.
    events: BinaryHeap<Reverse<Event>>,
    scheduled: u64,
    /// End of the last transmission of each device, and the begins of the transmissions of its waiting packets.
    devices: BTreeMap<Device, (u64, VecDeque<u64>)>,
    /// Links of the devices with a background.
    shared: BTreeMap<Device, PlainLink>,
    outcome: Outcome,
}

/// Time, component, number of the event, packet and what happens.
type Event = (u64, Component, u64, Message, Place);

/// Place of an event among those at one time, in the order in which they happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Component {
    Device(Device),
    Line(usize),
    /// Air on the way to a node.
    Air(u32),
    /// Fibre on the way to a site.
    Fibre(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Device {
    Laser(usize),
    /// Downlink of a satellite to a group, or to a site.
    Group(u32, u32),
    Own(u32, u32),
    Up(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// Leaves a device into the air.
    Leaves(Device),
    /// Arrives at a node, over a laser or through the air.
    Arrives(u32),
    /// Arrives at a site from one behind it.
    Enters(u32),
}

impl<'c> Reference<'c> {
    fn run(case: &'c Case) -> Outcome {
        let outcome = Outcome { arrived: Vec::new(), lost: BTreeMap::new(), crossings: 0 };
        let (events, devices, shared) = (BinaryHeap::new(), BTreeMap::new(), BTreeMap::new());
        let mut of = Self { case, events, scheduled: 0, devices, shared, outcome };
        let mut sends = case.sites.sends.clone();
        let end = STEP * STEPS - 1;
        loop {
            let event = of.events.peek().map(|Reverse((at, ..))| *at);
            let send = sends.front().map(|(at, ..)| *at);
            match (event, send) {
                (Some(event), send) if event <= end && send.is_none_or(|send| event <= send) => {
                    of.event()
                }
                (_, Some(now)) if now <= end => {
                    while let Some(&(at, site, message)) = sends.front()
                        && at == now
                    {
                        sends.pop_front();
                        of.send(site, at, message);
                    }
                }
                _ => break,
            }
        }
        of.outcome
    }

    fn view(&self, at: u64) -> &'c View<Tables> {
        &self.case.views[(at / STEP) as usize]
    }

    fn schedule(&mut self, at: u64, component: Component, message: Message, place: Place) {
        self.events.push(Reverse((at, component, self.scheduled, message, place)));
        self.scheduled += 1;
    }

    /// Schedule an event whose turn among those of a component at one time depends on the node that a packet comes from.
    fn schedule_from(
        &mut self,
        from: u32,
        (at, component): (u64, Component),
        message: Message,
        place: Place,
    ) {
        let number = (u64::from(from) << 40) | self.scheduled;
        self.events.push(Reverse((at, component, number, message, place)));
        self.scheduled += 1;
    }

    fn send(&mut self, site: u32, at: u64, message: Message) {
        if !self.case.layout.is_behind[site as usize] {
            return self.enqueue(Device::Up(site), at, (NO_NODE, message));
        }
        let view = self.view(at);
        let satellite = view.routes.up(site, message.to, 0);
        match view.air[site as usize].iter().find(|air| air.satellite == satellite) {
            None => self.lose(at, message, LossReason::Outage),
            Some(air) => {
                let when = (at + air.fibre.as_nanos(), Component::Fibre(air.antenna));
                self.schedule_from(site, when, message, Place::Enters(air.antenna));
            }
        }
    }

    fn event(&mut self) {
        let Reverse((at, component, number, message, place)) = self.events.pop().unwrap();
        let from = match component {
            Component::Line(laser) => self.case.layout.lasers[laser].from,
            Component::Air(_) => (number >> 40) as u32,
            Component::Device(_) | Component::Fibre(_) => NO_NODE,
        };
        match place {
            Place::Leaves(device) => self.leave(device, at, message),
            Place::Enters(antenna) => self.enqueue(Device::Up(antenna), at, (from, message)),
            Place::Arrives(node) => {
                self.outcome.crossings += 1;
                if node < self.case.layout.satellites {
                    self.forward(node, at, (from, message));
                } else {
                    self.outcome.arrived.push((at, message));
                }
            }
        }
    }

    fn forward(&mut self, satellite: u32, at: u64, (from, message): (u32, Message)) {
        let device = match self.view(at).routes.port(satellite, message.to, 0) {
            NO_ROUTE => return self.lose(at, message, LossReason::Outage),
            DOWN => match self.case.layout.downlinks[message.to as usize] {
                Downlink::Shared(group) => Device::Group(satellite, group),
                Downlink::Own(_) => Device::Own(satellite, message.to),
            },
            port => {
                let lasers = self.case.layout.lasers.iter().enumerate();
                let own: Vec<usize> = lasers
                    .filter(|(_, laser)| laser.from == satellite)
                    .map(|(number, _)| number)
                    .collect();
                Device::Laser(own[usize::from(port)])
            }
        };
        self.enqueue(device, at, (from, message));
    }

    fn config(&self, device: Device) -> &'c LinkConfig {
        let layout = &self.case.layout;
        match device {
            Device::Laser(number) => &layout.lasers[number].config,
            Device::Group(satellite, group) => &layout.down[group as usize][satellite as usize],
            Device::Up(site) => &layout.up[site as usize],
            Device::Own(_, site) => match &layout.downlinks[site as usize] {
                Downlink::Own(config) => config,
                Downlink::Shared(_) => panic!("the site has no downlink of its own"),
            },
        }
    }

    /// Let a packet enter a device with a background, which draws random numbers in the order of its packets.
    fn enqueue_shared(&mut self, device: Device, at: u64, (from, mut message): (u32, Message)) {
        let config = self.config(device);
        let link = self.shared.entry(device).or_insert_with(|| PlainLink::new(config).unwrap());
        let via = Via { from, headway: message.headway };
        let Some((arrives, headway)) = link.enter_via(Instant::from_nanos(at), SIZE, via) else {
            return self.lose(at, message, LossReason::Queue);
        };
        message.headway = headway;
        let (component, place) = match device {
            Device::Laser(number) => {
                (Component::Line(number), Place::Arrives(self.case.layout.lasers[number].to))
            }
            device => (Component::Device(device), Place::Leaves(device)),
        };
        self.schedule(arrives.as_nanos(), component, message, place);
    }

    fn enqueue(&mut self, device: Device, at: u64, (from, message): (u32, Message)) {
        let config = self.config(device);
        if config.schedule.background.is_some() {
            return self.enqueue_shared(device, at, (from, message));
        }
        let (free, waiting) = self.devices.entry(device).or_default();
        while waiting.front().is_some_and(|begins| *begins <= at) {
            waiting.pop_front();
        }
        let Limit::Packets(room) = config.queue else { panic!("queues count packets") };
        if waiting.len() as u64 == room {
            return self.lose(at, message, LossReason::Queue);
        }
        let begins = at.max(*free);
        let bits_per_ms = config.schedule.rate[0].value.bits_per_second() / 1_000;
        let ends = begins + SIZE.as_u64() * 8 * MS / bits_per_ms;
        *free = ends;
        if begins > at {
            waiting.push_back(begins);
        }
        let Device::Laser(number) = device else {
            let leaves = ends + config.schedule.delay[0].delay.as_nanos();
            let place = Place::Leaves(device);
            return self.schedule(leaves, Component::Device(device), message, place);
        };
        let laser = &self.case.layout.lasers[number];
        let [first, last] =
            [0, 1].map(|piece| config.schedule.delay[piece].delay.as_nanos() as i64);
        let half = (STEP * STEPS / 2) as i64;
        let delay =
            if (ends as i64) < half { first + (last - first) * ends as i64 / half } else { last };
        let place = Place::Arrives(laser.to);
        self.schedule(ends + delay as u64, Component::Line(number), message, place);
    }

    fn leave(&mut self, device: Device, at: u64, message: Message) {
        let (view, layout) = (self.view(at), &self.case.layout);
        let (satellite, site, from, to) = match device {
            Device::Up(site) => {
                let satellite = view.routes.up(site, message.to, 0);
                (satellite, site, layout.satellites + site, satellite)
            }
            Device::Group(satellite, _) | Device::Own(satellite, _) => {
                (satellite, message.to, satellite, layout.satellites + message.to)
            }
            Device::Laser(_) => panic!("what leaves a laser arrives"),
        };
        if satellite == NO_SATELLITE {
            return self.lose(at, message, LossReason::Outage);
        }
        let Some(air) = view.air[site as usize].iter().find(|air| air.satellite == satellite)
        else {
            return match view.routes.port(satellite, message.to, 0) {
                NO_ROUTE | DOWN => self.lose(at, message, LossReason::Outage),
                _ => self.forward(satellite, at, (NO_NODE, message)),
            };
        };
        let [first, last] = air.delay.map(|delay| delay.as_nanos() as i64);
        let delay = first + (last - first) * (at - view.from.as_nanos()) as i64 / STEP as i64;
        let arrives = at + delay as u64;
        if air.sets && arrives > view.until.as_nanos() {
            return self.lose(view.until.as_nanos(), message, LossReason::Dismantled);
        }
        // Packets that arrive at a node through the air at the same time are ordered by where they come from.
        let when = (arrives + air.fibre.as_nanos(), Component::Air(to));
        self.schedule_from(from, when, message, Place::Arrives(to));
    }

    fn lose(&mut self, at: u64, message: Message, reason: LossReason) {
        self.outcome.lost.insert(message, (at, reason));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn packets_do_as_in_a_slow_reference(case in cases()) {
        let (outcome, inside) = run(&case, 1);
        prop_assert_eq!(&outcome, &Reference::run(&case));
        let all = outcome.arrived.len() as u64 + outcome.lost.len() as u64 + inside;
        prop_assert_eq!(all, case.sites.sends.len() as u64);
    }

    #[test]
    fn the_number_of_threads_changes_nothing(case in cases(), threads in 2_usize..5) {
        prop_assert_eq!(run(&case, threads), run(&case, 1));
    }
}
