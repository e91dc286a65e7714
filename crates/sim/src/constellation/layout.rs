//! Devices of a network's links from its plan.

use skyhop_experiment::{HopPlan, NetworkLink, NetworkPlan, seed_for};
use skyhop_link::{DelayPiece, Dismantled, LinkConfig, Outage};
use skyhop_net::{Downlink, Laser, Layout};
use skyhop_path::failures::{FailureTime, Part};
use skyhop_path::network::{LaserPath, Leg, Role};
use skyhop_units::{Duration, Instant};

use crate::constellation::background::Backgrounds;

/// Nodes and devices of a plan, with the loads of its background.
pub(super) fn layout(plan: &NetworkPlan, seed: u64, backgrounds: &mut Backgrounds) -> Layout {
    let mut devices = Devices { plan, seed, backgrounds };
    let satellites = plan.satellites();
    let sites = 0..plan.request.sites.len() as u32;
    let lasers = plan.lasers.iter().map(|path| devices.laser(path)).collect();
    let mut down = vec![(0..satellites).map(|number| devices.down(number)).collect()];
    if plan.has_gateways() {
        down.push((0..satellites).map(|number| devices.gateway_down(number)).collect());
    }
    let is_behind = |site: u32| *plan.request.role(site) == Role::PointOfPresence;
    Layout {
        satellites,
        sites: sites.end,
        lasers,
        down,
        downlinks: sites.clone().map(|site| devices.downlink(site)).collect(),
        up: sites.clone().map(|site| devices.up(site)).collect(),
        is_behind: sites.map(is_behind).collect(),
    }
}

/// Devices of a plan, each with random draws of its own.
struct Devices<'p, 'b> {
    plan: &'p NetworkPlan,
    seed: u64,
    backgrounds: &'b mut Backgrounds,
}

impl Devices<'_, '_> {
    fn device(&self, hop: &HopPlan, name: &str) -> LinkConfig {
        LinkConfig { seed: seed_for(self.seed, name), ..hop.config.clone() }
    }

    fn laser(&mut self, path: &LaserPath) -> Laser {
        let name = format!("laser {} {}", path.from, path.to);
        let mut config = self.device(&self.plan.hops.laser, &name);
        config.schedule.delay = pieces(&path.delays);
        config.schedule.dismantled = path.breaks.iter().map(|at| dismantled(*at)).collect();
        fail(&mut config, &path.failed);
        self.backgrounds.load(Leg::Laser(path.from, path.to), &mut config);
        Laser { from: path.from, to: path.to, config }
    }

    /// Device of a satellite towards the sites.
    fn down(&mut self, satellite: u32) -> LinkConfig {
        let name = format!("down {satellite}");
        self.of_satellite(satellite, self.device(&self.plan.hops.down, &name), Leg::Down(satellite))
    }

    /// Device of a satellite towards the gateways.
    fn gateway_down(&mut self, satellite: u32) -> LinkConfig {
        let name = format!("gateway down {satellite}");
        let config = self.device(&self.plan.hops.gateway_down, &name);
        self.of_satellite(satellite, config, Leg::GatewayDown(satellite))
    }

    fn of_satellite(&mut self, satellite: u32, mut config: LinkConfig, leg: Leg) -> LinkConfig {
        fail(&mut config, &self.failures(Part::Satellite(satellite)));
        self.backgrounds.load(leg, &mut config);
        config
    }

    /// Downlinks to a site: those of its group, or its own.
    fn downlink(&mut self, site: u32) -> Downlink {
        match self.plan.request.role(site) {
            Role::Terminal { .. } if self.plan.downlink_per_site => {
                let name = format!("down {}", self.plan.request.sites[site as usize].name);
                let mut config = self.device(&self.plan.hops.down, &name);
                config.schedule = self.plan.schedule(NetworkLink::OwnDown(site)).clone();
                self.backgrounds.load(Leg::OwnDown(site), &mut config);
                Downlink::Own(Box::new(config))
            }
            Role::Terminal { .. } => Downlink::Shared(0),
            Role::Gateway | Role::PointOfPresence => Downlink::Shared(1),
        }
    }

    /// Device of a site towards the satellites.
    fn up(&mut self, site: u32) -> LinkConfig {
        let link = NetworkLink::Up(site);
        let name = format!("up {}", self.plan.request.sites[site as usize].name);
        let mut config = self.device(self.plan.hop(link), &name);
        config.schedule = self.plan.schedule(link).clone();
        fail(&mut config, &self.failures(Part::Site(site)));
        self.backgrounds.load(Leg::Up(site), &mut config);
        config
    }

    fn failures(&self, part: Part) -> Vec<FailureTime> {
        self.plan.request.options.failures.times_of(part)
    }
}

/// Loss of all packets in the queue of a link and on it.
const fn dismantled(at: Instant) -> Dismantled {
    Dismantled { at, near: Duration::ZERO, far: Duration::MAX, queue: true }
}

/// Add failures to the schedule of a link: what is in its queue or on it is lost, and what comes during the failure.
fn fail(config: &mut LinkConfig, times: &[FailureTime]) {
    let schedule = &mut config.schedule;
    let begun = times.iter().filter(|[from, _]| *from > Instant::START);
    schedule.dismantled.extend(begun.map(|[from, _]| dismantled(*from)));
    schedule.dismantled.sort_by_key(|hop| hop.at);
    schedule.add_outages(times.iter().map(|&[from, until]| Outage { from, until }));
}

/// Pieces of a delay that changes linearly between points.
fn pieces(points: &[(Instant, Duration)]) -> Vec<DelayPiece> {
    let at_end = |next: usize| points.get(next).or(points.last()).map_or(Duration::ZERO, |at| at.1);
    let piece = |(index, &(from, delay)): (usize, &(Instant, Duration))| DelayPiece {
        // The delay before the link exists is that of its first time.
        from: if index == 0 { Instant::START } else { from },
        delay,
        delay_at_end: at_end(index + 1),
        new_route: false,
    };
    points.iter().enumerate().map(piece).collect()
}
