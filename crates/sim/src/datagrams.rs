//! Flow over UDP datagrams: the two ends of its application.

use skyhop_app::{
    Action, App, AppKind as _, Application, Datagram, Event, FlowFacts, Side, Transaction,
};
use skyhop_units::Instant;

/// Both ends of a flow over datagrams, the client first.
pub(crate) struct Datagrams {
    ends: [Box<dyn Application>; 2],
    /// Time at which each end wants to be polled again.
    waits: [Instant; 2],
}

impl Datagrams {
    pub(crate) fn new(app: &App, facts: &FlowFacts) -> Self {
        Self { ends: [app.client(facts), app.server(facts, 0)], waits: [facts.start; 2] }
    }

    /// Deliver a datagram to an end; return whether the end has to be polled now.
    pub(crate) fn on_datagram(&mut self, side: Side, now: Instant, datagram: Datagram) -> bool {
        self.ends[side as usize].on_event(now, Event::Datagram(datagram));
        // An end whose own time has come has a visit in the calendar already.
        self.waits[side as usize] > now
    }

    /// Tell both ends that a datagram from `sender` was lost.
    pub(crate) fn on_loss(&mut self, sender: Side, datagram: Datagram) {
        self.ends.iter_mut().for_each(|end| end.on_known_loss(sender, datagram.number));
    }

    /// Return the next datagram that an end sends now, or `None` if it waits.
    pub(crate) fn poll(&mut self, side: Side, now: Instant) -> Option<Datagram> {
        loop {
            match self.ends[side as usize].poll(now) {
                Action::Send(datagram) => return Some(datagram),
                Action::Wait(until) => {
                    self.waits[side as usize] = until;
                    return None;
                }
                // The other actions concern connections.
                _ => {}
            }
        }
    }

    /// Time at which an end wants to be polled.
    pub(crate) fn next_timer(&self, side: Side) -> Instant {
        self.waits[side as usize]
    }

    /// Return the transactions that the application has completed or failed since the last call.
    pub(crate) fn take_results(&mut self, now: Instant) -> Vec<Transaction> {
        in_order(self.ends.iter_mut().flat_map(|end| end.take_results(now)).collect())
    }

    /// Return the transactions that have failed by the end of the run.
    pub(crate) fn conclude(&mut self, end: Instant) -> Vec<Transaction> {
        in_order(self.ends.iter_mut().flat_map(|one| one.conclude(end)).collect())
    }
}

/// Sort by number the transactions of both ends.
fn in_order(mut results: Vec<Transaction>) -> Vec<Transaction> {
    results.sort_by_key(|one| one.number);
    results
}
