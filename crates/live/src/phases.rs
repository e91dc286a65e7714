//! What the congestion controls of a run say that they do about announced handovers.

use skyhop_kernel::{PhaseReader, Told};
use skyhop_model::EventKind;
use skyhop_record::EventRow;

use crate::clock::RunClock;
use crate::error::{During, LiveError};
use crate::frame::own_index;

/// Notes it while the run goes on: what the kernel keeps for nobody is dropped.
pub(crate) struct PhaseLog {
    readers: Vec<PhaseReader>,
    told: Vec<Told>,
}

impl PhaseLog {
    pub(crate) fn new(readers: Vec<PhaseReader>) -> Self {
        Self { readers, told: Vec::new() }
    }

    /// Reads what was told since the last call.
    pub(crate) fn tick(&mut self) -> Result<(), LiveError> {
        for reader in &self.readers {
            self.told.extend(reader.read().during("cannot follow a module")?);
        }
        Ok(())
    }

    /// All of it as rows; `flow_ids` are by place. Those of a program belong to no flow.
    pub(crate) fn rows(self, clock: RunClock, flow_ids: &[Option<u32>]) -> Vec<EventRow> {
        self.told.iter().map(|told| row(told, clock, flow_ids)).collect()
    }
}

fn row(told: &Told, clock: RunClock, flow_ids: &[Option<u32>]) -> EventRow {
    let index = own_index(told.local_port).or(own_index(told.remote_port));
    let flow = index.and_then(|index| flow_ids.get(index).copied().flatten());
    let phase = told.phase;
    EventRow {
        t_ns: clock.at(phase.begin_ns).as_nanos() as i64,
        kind: EventKind::Phase(phase.kind),
        flow: flow.map(|id| id as i32),
        length_ns: Some(phase.end_ns.saturating_sub(phase.begin_ns) as i64),
        ..EventRow::default()
    }
}
