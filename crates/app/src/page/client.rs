//! The browser: loads pages, one after the other, each over connections of its own.

use std::collections::VecDeque;

use skyhop_units::{Bytes, Duration, Instant};

use super::Page;
use super::plan::{Exchange, Plan, What};
use crate::{Action, Application, Detail, Event, FlowFacts, Transaction};

/// After a failure the next page waits at least so long.
const RETRY: Duration = Duration::from_millis(100);

/// The end that asks.
#[derive(Debug)]
pub(super) struct Client {
    config: Page,
    seed: u64,
    stop: Instant,
    state: State,
    /// How many pages have begun.
    pages: u64,
    /// How many objects have been told of.
    objects: u64,
    todo: VecDeque<Action>,
    results: Vec<Transaction>,
}

#[derive(Debug)]
enum State {
    /// Between pages.
    Thinking {
        until: Instant,
    },
    Loading(Loading),
    Done,
}

/// A page that is being loaded.
#[derive(Debug)]
struct Loading {
    number: u64,
    due: Instant,
    objects: u32,
    think: Duration,
    lanes: Vec<Lane>,
    /// When the document had been read, and its objects were due.
    read: Option<Instant>,
    /// Objects that are not here yet.
    left: u32,
    sent: Bytes,
    received: Bytes,
    connect: Option<Duration>,
    first_byte: Option<Duration>,
}

/// One of its connections.
#[derive(Debug)]
struct Lane {
    connection: u32,
    is_there: bool,
    /// How long it took to connect, until a request has told of it.
    connect: Option<Duration>,
    unasked: VecDeque<Exchange>,
    out: VecDeque<Out>,
}

/// A request that is out.
#[derive(Debug, Clone, Copy)]
struct Out {
    exchange: Exchange,
    received: Bytes,
    connect: Option<Duration>,
    first_byte: Option<Instant>,
}

impl Client {
    pub(super) fn new(config: Page, flow: &FlowFacts) -> Self {
        Self {
            config,
            seed: flow.seed,
            stop: flow.stop,
            state: State::Thinking { until: flow.start },
            pages: 0,
            objects: 0,
            todo: VecDeque::new(),
            results: Vec::new(),
        }
    }

    fn begin(&mut self, due: Instant) {
        let is_enough = self.config.pages.is_some_and(|pages| self.pages >= pages);
        if due >= self.stop || is_enough {
            self.state = State::Done;
            return;
        }
        let plan = Plan::of(&self.config, self.seed, self.pages);
        // A server tells by the number what is asked of it.
        let first = self.pages as u32 * self.config.connections;
        let lanes = (first..).zip(plan.lanes).map(|(connection, unasked)| Lane {
            connection,
            is_there: false,
            connect: None,
            unasked,
            out: VecDeque::new(),
        });
        self.state = State::Loading(Loading {
            number: self.pages,
            due,
            objects: plan.objects,
            think: plan.think,
            lanes: lanes.collect(),
            read: None,
            left: plan.objects,
            sent: Bytes::ZERO,
            received: Bytes::ZERO,
            connect: None,
            first_byte: None,
        });
        self.pages += 1;
        self.todo.push_back(Action::Open(first));
    }

    /// Ends the page that is being loaded, with all connections it has; the next one is due after a while.
    fn end(&mut self, now: Instant, took: Option<Duration>) {
        let State::Loading(page) = std::mem::replace(&mut self.state, State::Done) else { return };
        let last = if took.is_some() { Action::Finish } else { Action::Abort };
        let opened = page
            .lanes
            .iter()
            .filter(|lane| lane.connection == page.lanes[0].connection || page.read.is_some());
        self.todo.extend(opened.flat_map(|lane| [Action::Turn(lane.connection), last]));
        for lane in &page.lanes {
            for out in &lane.out {
                self.tell(&page, lane.connection, *out, None);
            }
            let unasked = lane.unasked.iter().map(|exchange| Out::unasked(*exchange));
            unasked.for_each(|out| self.tell(&page, lane.connection, out, None));
        }
        self.results.push(Transaction {
            connection: page.lanes[0].connection,
            number: page.number,
            due: page.due,
            sent: page.sent,
            answered: page.received,
            connect: page.connect,
            first_byte: page.first_byte,
            took,
            detail: Detail::Page { objects: page.objects },
        });
        let think = if took.is_some() { page.think } else { page.think.max(RETRY) };
        self.state = State::Thinking { until: now + think };
    }

    /// Tells what became of a document or an object; of what was never due, nothing.
    fn tell(&mut self, page: &Loading, connection: u32, out: Out, read: Option<Instant>) {
        let due = match out.exchange.what {
            What::Handshake => return,
            What::Document => page.due,
            What::Object => match page.read {
                Some(read) => read,
                None => return,
            },
        };
        self.results.push(Transaction {
            connection,
            number: self.objects,
            due,
            sent: out.exchange.request,
            answered: out.received,
            connect: out.connect,
            first_byte: out.first_byte.map(|at| at.saturating_since(due)),
            took: read.map(|at| at.saturating_since(due)),
            detail: Detail::Object { page: page.number },
        });
        self.objects += 1;
    }

    /// So much more has been read from a connection of the page.
    fn receive(&mut self, now: Instant, page: &mut Loading, index: usize, mut bytes: Bytes) {
        while bytes > Bytes::ZERO {
            let Some(out) = page.lanes[index].out.front_mut() else { return };
            let part = bytes.min(out.exchange.response - out.received);
            bytes -= part;
            out.received += part;
            out.first_byte.get_or_insert(now);
            page.received += part;
            if out.exchange.what == What::Document {
                page.first_byte.get_or_insert(now.saturating_since(page.due));
            }
            if out.received < out.exchange.response {
                return;
            }
            let whole = *out;
            page.lanes[index].out.pop_front();
            self.complete(now, page, index, whole);
        }
    }

    /// An answer has been read whole.
    fn complete(&mut self, now: Instant, page: &mut Loading, index: usize, out: Out) {
        self.tell(page, page.lanes[index].connection, out, Some(now));
        match out.exchange.what {
            What::Handshake => {}
            What::Document => {
                page.read = Some(now);
                let others = page.lanes[1..].iter().map(|lane| Action::Open(lane.connection));
                self.todo.extend(others);
            }
            What::Object => page.left -= 1,
        }
        self.ask(page, index);
    }

    /// Asks for as much as a connection may.
    fn ask(&mut self, page: &mut Loading, index: usize) {
        let (read, lane) = (page.read, &mut page.lanes[index]);
        let mut turn = Some(Action::Turn(lane.connection));
        while lane.is_there && lane.out.len() < self.config.parallel as usize {
            let Some(next) = lane.unasked.front().copied() else { return };
            // The next round trip of a handshake answers the one before, and nothing goes out before its end.
            let is_held = lane.out.iter().any(|out| out.exchange.what != What::Object);
            if is_held || (next.what == What::Object && read.is_none()) {
                return;
            }
            lane.unasked.pop_front();
            let connect = if next.what == What::Handshake { None } else { lane.connect.take() };
            lane.out.push_back(Out { connect, ..Out::unasked(next) });
            page.sent += next.request;
            self.todo.extend(turn.take());
            self.todo.push_back(Action::Write(next.request));
        }
    }
}

impl Out {
    fn unasked(exchange: Exchange) -> Self {
        Self { exchange, received: Bytes::ZERO, connect: None, first_byte: None }
    }
}

impl Application for Client {
    fn on_event(&mut self, _now: Instant, _event: Event) {}

    fn on_event_of(&mut self, now: Instant, connection: u32, event: Event) {
        // It is put back below: what happens to a page tells of it, and is told by it.
        let mut page = match std::mem::replace(&mut self.state, State::Done) {
            State::Loading(page) => page,
            other => {
                self.state = other;
                return;
            }
        };
        let Some(index) = page.lanes.iter().position(|lane| lane.connection == connection) else {
            self.state = State::Loading(page);
            return;
        };
        match event {
            Event::Connected => {
                let since = page.read.unwrap_or(page.due);
                let took = now.saturating_since(since);
                page.connect.get_or_insert(took);
                (page.lanes[index].is_there, page.lanes[index].connect) = (true, Some(took));
                self.ask(&mut page, index);
            }
            Event::Received(bytes) => self.receive(now, &mut page, index, bytes),
            Event::PeerFinished | Event::Lost | Event::Datagram(_) => {}
        }
        let (is_whole, due) = (page.read.is_some() && page.left == 0, page.due);
        self.state = State::Loading(page);
        if event == Event::Lost {
            self.end(now, None);
        } else if is_whole {
            self.end(now, Some(now.saturating_since(due)));
        }
    }

    fn poll(&mut self, now: Instant) -> Action {
        loop {
            if let Some(action) = self.todo.pop_front() {
                return action;
            }
            match &self.state {
                State::Thinking { until } if now < *until => return Action::Wait(*until),
                State::Thinking { until } => self.begin(*until),
                State::Loading(page) if page.due + self.config.timeout <= now => {
                    self.end(now, None)
                }
                State::Loading(page) => return Action::Wait(page.due + self.config.timeout),
                State::Done => return Action::Wait(Instant::NEVER),
            }
        }
    }

    fn take_results(&mut self, _now: Instant) -> Vec<Transaction> {
        std::mem::take(&mut self.results)
    }
}
