//! What carries packets between the two ends: pumps with skyhop's links, or the kernel with Linux's own.

use std::sync::Arc;

use skyhop_engine::Unsupported;
use skyhop_experiment::Experiment;
use skyhop_host::clock::{RunClock, Stop};
use skyhop_host::device::{Device, DeviceCount, DeviceKind};
use skyhop_host::error::HostError;
use skyhop_host::namespace::NetNamespace;
use skyhop_model::{Direction, End, LinuxLink};

use crate::arrivals::Arrivals;
use crate::pump::{Pump, PumpState, PumpView, Sojourn};
use crate::routes;
use crate::tc::{RunningTc, TcLinks, TcPlan};
use crate::timing::LatenessWindow;
use crate::traffic::Addresses;
use crate::turns::RunningPumps;

/// What is between the ends' namespaces.
#[derive(Debug, Clone)]
pub(crate) enum Between {
    /// A device for each end, for pumps.
    Devices([Arc<Device>; 2]),
    /// Routers.
    Tc(Arc<TcLinks>),
}

impl Between {
    /// Gives each end its only device.
    pub(crate) fn create(
        experiment: &Experiment,
        ends: [&NetNamespace; 2],
        preferred: DeviceKind,
        tc: Option<&TcPlan>,
    ) -> Result<Self, HostError> {
        if let Some(plan) = tc {
            return Ok(Self::Tc(TcLinks::create(ends, plan)?));
        }
        let [from_has, to_has] = [End::From, End::To].map(Addresses::all_of);
        let ends = [(ends[0], from_has.as_slice()), (ends[1], to_has.as_slice())];
        let devices = Device::create_pair(experiment.device, preferred, ends)?;
        Ok(Self::Devices(devices.map(Arc::new)))
    }

    /// Whether each loss has a row.
    pub(crate) fn lists_losses(&self) -> bool {
        matches!(self, Self::Devices(_))
    }

    /// Whether the ends' devices count packet by packet what they send: routers are given several in one.
    pub(crate) fn counts_packets(&self) -> bool {
        matches!(self, Self::Devices(_))
    }

    /// What the kernel has counted at the ends' devices.
    pub(crate) fn counts(&self) -> Result<[DeviceCount; 2], HostError> {
        match self {
            Self::Devices([from, to]) => Ok([from.count()?, to.count()?]),
            Self::Tc(links) => links.counts(),
        }
    }

    /// Brings the directions' views up to date where nobody else does.
    pub(crate) fn refresh(&self) -> Result<(), HostError> {
        match self {
            Self::Devices(_) => Ok(()),
            Self::Tc(links) => links.refresh(),
        }
    }

    /// What the ends' devices are.
    pub(crate) fn kind(&self) -> DeviceKind {
        match self {
            Self::Devices(devices) => devices[0].kind(),
            Self::Tc(_) => DeviceKind::Veth,
        }
    }

    /// Whose links they are.
    pub(crate) fn link(&self) -> LinuxLink {
        match self {
            Self::Devices(_) => LinuxLink::Skyhop,
            Self::Tc(_) => LinuxLink::Tc,
        }
    }

    /// What a user must know of packets that could not have been on a wire.
    pub(crate) fn warnings(&self) -> Vec<String> {
        match self {
            Self::Devices(devices) => devices.iter().filter_map(|one| one.warning()).collect(),
            Self::Tc(_) => Vec::new(),
        }
    }
}

/// Carries packets in both directions.
pub(crate) enum Carrier {
    /// Skyhop's links.
    Pumps(RunningPumps),
    /// Linux's.
    Tc(RunningTc),
}

/// What pumps are made of beside what is between the ends.
pub(crate) struct PumpParts<'e> {
    pub(crate) experiment: &'e Experiment,
    pub(crate) clock: RunClock,
    /// Whether computing takes no time by it.
    pub(crate) is_virtual: bool,
    pub(crate) spin: bool,
    pub(crate) stop: Arc<Stop>,
    pub(crate) flow_ids: Arc<[Option<u32>]>,
    pub(crate) arrivals: Arc<Arrivals>,
}

impl Carrier {
    /// Starts it.
    pub(crate) fn start(
        between: &Between,
        tc: Option<TcPlan>,
        parts: &PumpParts<'_>,
    ) -> Result<Self, HostError> {
        match (between, tc) {
            (Between::Devices(devices), _) => {
                let forward = parts.pump(Direction::Forward, devices)?;
                let back = parts.pump(Direction::Back, devices)?;
                Ok(Self::Pumps(RunningPumps::start([forward, back], parts)?))
            }
            (Between::Tc(links), plan) => {
                let (links, stop) = (Arc::clone(links), Arc::clone(&parts.stop));
                Ok(Self::Tc(RunningTc::start(links, plan.unwrap_or_default(), parts.clock, stop)?))
            }
        }
    }

    /// Whether it has ended, which it does by itself only on an error.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Pumps(pumps) => pumps.has_ended(),
            Self::Tc(tc) => tc.has_ended(),
        }
    }

    /// Both directions, as others may look at them.
    pub(crate) fn views(&self) -> [&Arc<PumpView>; 2] {
        match self {
            Self::Pumps(pumps) => pumps.views.each_ref(),
            Self::Tc(tc) => tc.links.views.each_ref(),
        }
    }

    /// How late packets were.
    pub(crate) fn lateness(&self) -> [&LatenessWindow; 2] {
        self.views().map(|view| &view.lateness)
    }

    /// Both directions as they are now.
    pub(crate) fn states(&self) -> Result<[PumpState; 2], HostError> {
        if let Self::Tc(tc) = self {
            tc.links.refresh()?;
        }
        Ok(self.views().map(|view| view.state()))
    }

    /// Waits for its end; returns what the links scheduled for each of skyhop's own datagrams, as far as they tell.
    pub(crate) fn join(self) -> Result<[Vec<Sojourn>; 2], HostError> {
        match self {
            Self::Pumps(pumps) => pumps.join(),
            Self::Tc(tc) => tc.join().map(|()| [Vec::new(), Vec::new()]),
        }
    }
}

impl PumpParts<'_> {
    fn pump(&self, direction: Direction, devices: &[Arc<Device>; 2]) -> Result<Pump, HostError> {
        let (fabric, routes) = routes::build(self.experiment, direction, &self.flow_ids)
            .map_err(|error: Unsupported| HostError::Unsupported(error.to_string()))?;
        let index = direction.index();
        let learns = self.experiment.blind.is_some() && direction == Direction::Back;
        Ok(Pump {
            direction,
            fabric,
            routes,
            from: Arc::clone(&devices[index]),
            to: Arc::clone(&devices[1 - index]),
            flow_ids: Arc::clone(&self.flow_ids),
            arrivals: learns.then(|| Arc::clone(&self.arrivals)),
        })
    }
}
