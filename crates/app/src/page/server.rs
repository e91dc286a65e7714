//! Server of web pages: answers on each connection in the order of the requests.

use std::collections::VecDeque;

use skyhop_units::{Bytes, Instant};

use super::Page;
use super::plan::{Exchange, Plan};
use crate::{Action, Application, Event, FlowFacts};

/// The server's end of one connection.
#[derive(Debug)]
pub(super) struct Server {
    /// Requests of this connection still to come.
    expected: VecDeque<Exchange>,
    /// Bytes of the incoming request received so far.
    received: Bytes,
    todo: VecDeque<Action>,
}

impl Server {
    /// Create the server's end of the connection with this number, from which the page and the
    /// connection's index in the page are derived.
    pub(super) fn new(page: &Page, flow: &FlowFacts, connection: u32) -> Self {
        let (number, lane) = (connection / page.connections, connection % page.connections);
        let mut lanes = Plan::of(page, flow.seed, number.into()).lanes.into_iter();
        let expected = lanes.nth(lane as usize).unwrap_or_default();
        Self { expected, received: Bytes::ZERO, todo: VecDeque::new() }
    }
}

impl Application for Server {
    fn on_event(&mut self, _now: Instant, event: Event) {
        match event {
            Event::Received(bytes) => self.received += bytes,
            Event::PeerFinished => self.todo.push_back(Action::Finish),
            Event::Connected | Event::Lost | Event::Datagram(_) => {}
        }
        while let Some(next) =
            self.expected.front().copied().filter(|next| self.received >= next.request)
        {
            self.expected.pop_front();
            self.received -= next.request;
            self.todo.push_back(Action::Write(next.response));
        }
    }

    fn poll(&mut self, _now: Instant) -> Action {
        self.todo.pop_front().unwrap_or(Action::Wait(Instant::NEVER))
    }
}
