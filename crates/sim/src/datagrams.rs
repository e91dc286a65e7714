//! A flow over datagrams: its application's two ends.

use skyhop_app::{
    Action, App, Application, Datagram, Event, FlowFacts, Kind as _, Side, Transaction,
};
use skyhop_units::Instant;

/// Both ends of a flow over datagrams, the client's first.
pub(crate) struct Datagrams {
    ends: [Box<dyn Application>; 2],
    /// When each wants to be asked again.
    waits: [Instant; 2],
}

impl Datagrams {
    pub(crate) fn new(app: &App, facts: &FlowFacts) -> Self {
        Self { ends: [app.client(facts), app.server(facts, 0)], waits: [facts.start; 2] }
    }

    /// A datagram has arrived at an end; whether that is to be asked now.
    pub(crate) fn on_datagram(&mut self, side: Side, now: Instant, datagram: Datagram) -> bool {
        self.ends[side as usize].on_event(now, Event::Datagram(datagram));
        // Otherwise its own time has come, and it is asked in its turn.
        self.waits[side as usize] > now
    }

    /// A datagram from `sender` was lost.
    pub(crate) fn on_loss(&mut self, sender: Side, datagram: Datagram) {
        self.ends.iter_mut().for_each(|end| end.on_known_loss(sender, datagram.number));
    }

    /// The next datagram that an end sends now.
    pub(crate) fn poll(&mut self, side: Side, now: Instant) -> Option<Datagram> {
        loop {
            match self.ends[side as usize].poll(now) {
                Action::Send(datagram) => return Some(datagram),
                Action::Wait(until) => {
                    self.waits[side as usize] = until;
                    return None;
                }
                // These are about connections.
                _ => {}
            }
        }
    }

    /// When an end wants to be asked.
    pub(crate) fn next_timer(&self, side: Side) -> Instant {
        self.waits[side as usize]
    }

    /// What the application has completed, or failed to.
    pub(crate) fn take_results(&mut self, now: Instant) -> Vec<Transaction> {
        in_order(self.ends.iter_mut().flat_map(|end| end.take_results(now)).collect())
    }

    /// What it has failed to do at the run's end.
    pub(crate) fn conclude(&mut self, end: Instant) -> Vec<Transaction> {
        in_order(self.ends.iter_mut().flat_map(|one| one.conclude(end)).collect())
    }
}

/// Both ends may have found something.
fn in_order(mut results: Vec<Transaction>) -> Vec<Transaction> {
    results.sort_by_key(|one| one.number);
    results
}
