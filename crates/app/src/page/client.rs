//! Client of web pages: the browser, which loads pages one after the other, each page over its own connections.

use std::collections::VecDeque;

use skyhop_units::{Bytes, Duration, Instant};

use super::Page;
use super::plan::{Exchange, ExchangeKind, Plan};
use crate::{Action, Application, Detail, Event, FlowFacts, Transaction};

/// Shortest pause between a failed page and the next one.
const RETRY: Duration = Duration::from_millis(100);

/// Client end of the flow: the browser.
#[derive(Debug)]
pub(super) struct Client {
    config: Page,
    seed: u64,
    stop: Instant,
    state: State,
    /// Number of pages begun so far.
    pages: u64,
    /// Number of documents and objects recorded so far, which is also the number of the next one.
    objects: u64,
    todo: VecDeque<Action>,
    results: Vec<Transaction>,
}

#[derive(Debug)]
enum State {
    /// Think time between two pages.
    Thinking {
        until: Instant,
    },
    Loading(Loading),
    Done,
}

/// Page that is being loaded.
#[derive(Debug)]
struct Loading {
    number: u64,
    due: Instant,
    objects: u32,
    think: Duration,
    lanes: Vec<Lane>,
    /// Time at which the document had been read, and its objects became due.
    document_read: Option<Instant>,
    /// Number of objects that have not been read yet.
    left: u32,
    sent: Bytes,
    received: Bytes,
    connect: Option<Duration>,
    first_byte: Option<Duration>,
}

/// One connection of the page with its requests.
#[derive(Debug)]
struct Lane {
    connection: u32,
    is_connected: bool,
    /// Time that the connection took to open; `None` once the result of a request has reported it.
    connect: Option<Duration>,
    queued: VecDeque<Exchange>,
    outstanding: VecDeque<OutstandingRequest>,
}

/// Request that is written and whose answer is not complete yet.
#[derive(Debug, Clone, Copy)]
struct OutstandingRequest {
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
        // From this number the server derives the page and the connection's index, and thereby
        // which objects are requested.
        let first = self.pages as u32 * self.config.connections;
        let lanes = (first..).zip(plan.lanes).map(|(connection, queued)| Lane {
            connection,
            is_connected: false,
            connect: None,
            queued,
            outstanding: VecDeque::new(),
        });
        self.state = State::Loading(Loading {
            number: self.pages,
            due,
            objects: plan.objects,
            think: plan.think,
            lanes: lanes.collect(),
            document_read: None,
            left: plan.objects,
            sent: Bytes::ZERO,
            received: Bytes::ZERO,
            connect: None,
            first_byte: None,
        });
        self.pages += 1;
        self.todo.push_back(Action::Open(first));
    }

    /// End the current page and close all of its open connections; the next page is due after the think time.
    fn end(&mut self, now: Instant, took: Option<Duration>) {
        let State::Loading(page) = std::mem::replace(&mut self.state, State::Done) else { return };
        let last = if took.is_some() { Action::Finish } else { Action::Abort };
        let opened = page.lanes.iter().filter(|lane| {
            lane.connection == page.lanes[0].connection || page.document_read.is_some()
        });
        self.todo.extend(opened.flat_map(|lane| [Action::Select(lane.connection), last]));
        for lane in &page.lanes {
            for request in &lane.outstanding {
                self.record(&page, lane.connection, *request, None);
            }
            let queued = lane.queued.iter().map(|exchange| OutstandingRequest::queued(*exchange));
            queued.for_each(|request| self.record(&page, lane.connection, request, None));
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

    /// Record the result of a document or an object. Objects that never became due are not recorded.
    fn record(
        &mut self,
        page: &Loading,
        connection: u32,
        request: OutstandingRequest,
        read_at: Option<Instant>,
    ) {
        let due = match request.exchange.kind {
            ExchangeKind::Handshake => return,
            ExchangeKind::Document => page.due,
            ExchangeKind::Object => match page.document_read {
                Some(document_read) => document_read,
                None => return,
            },
        };
        self.results.push(Transaction {
            connection,
            number: self.objects,
            due,
            sent: request.exchange.request,
            answered: request.received,
            connect: request.connect,
            first_byte: request.first_byte.map(|at| at.saturating_since(due)),
            took: read_at.map(|at| at.saturating_since(due)),
            detail: Detail::Object { page: page.number },
        });
        self.objects += 1;
    }

    /// Assign newly read bytes of one of the page's connections to its outstanding requests, in order.
    fn receive(&mut self, now: Instant, page: &mut Loading, index: usize, mut bytes: Bytes) {
        while bytes > Bytes::ZERO {
            let Some(request) = page.lanes[index].outstanding.front_mut() else { return };
            let part = bytes.min(request.exchange.response - request.received);
            bytes -= part;
            request.received += part;
            request.first_byte.get_or_insert(now);
            page.received += part;
            if request.exchange.kind == ExchangeKind::Document {
                page.first_byte.get_or_insert(now.saturating_since(page.due));
            }
            if request.received < request.exchange.response {
                return;
            }
            let whole = *request;
            page.lanes[index].outstanding.pop_front();
            self.complete(now, page, index, whole);
        }
    }

    /// Handle an answer that has been read completely.
    fn complete(
        &mut self,
        now: Instant,
        page: &mut Loading,
        index: usize,
        request: OutstandingRequest,
    ) {
        self.record(page, page.lanes[index].connection, request, Some(now));
        match request.exchange.kind {
            ExchangeKind::Handshake => {}
            ExchangeKind::Document => {
                page.document_read = Some(now);
                let others = page.lanes[1..].iter().map(|lane| Action::Open(lane.connection));
                self.todo.extend(others);
            }
            ExchangeKind::Object => page.left -= 1,
        }
        self.ask(page, index);
    }

    /// Write as many queued requests as the connection may have outstanding.
    fn ask(&mut self, page: &mut Loading, index: usize) {
        let (document_read, lane) = (page.document_read, &mut page.lanes[index]);
        let mut select = Some(Action::Select(lane.connection));
        while lane.is_connected && lane.outstanding.len() < self.config.parallel as usize {
            let Some(next) = lane.queued.front().copied() else { return };
            // Each round trip of a TLS handshake must end before the next request is written, and
            // so must the document.
            let is_held = lane
                .outstanding
                .iter()
                .any(|request| request.exchange.kind != ExchangeKind::Object);
            if is_held || (next.kind == ExchangeKind::Object && document_read.is_none()) {
                return;
            }
            lane.queued.pop_front();
            let connect =
                if next.kind == ExchangeKind::Handshake { None } else { lane.connect.take() };
            lane.outstanding
                .push_back(OutstandingRequest { connect, ..OutstandingRequest::queued(next) });
            page.sent += next.request;
            self.todo.extend(select.take());
            self.todo.push_back(Action::Write(next.request));
        }
    }
}

impl OutstandingRequest {
    fn queued(exchange: Exchange) -> Self {
        Self { exchange, received: Bytes::ZERO, connect: None, first_byte: None }
    }
}

impl Application for Client {
    fn on_event(&mut self, _now: Instant, _event: Event) {}

    fn on_connection_event(&mut self, now: Instant, connection: u32, event: Event) {
        // The page is moved out of the state and put back below, because the methods borrow both the
        // page and `self`.
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
                let since = page.document_read.unwrap_or(page.due);
                let took = now.saturating_since(since);
                page.connect.get_or_insert(took);
                (page.lanes[index].is_connected, page.lanes[index].connect) = (true, Some(took));
                self.ask(&mut page, index);
            }
            Event::Received(bytes) => self.receive(now, &mut page, index, bytes),
            Event::PeerFinished | Event::Lost | Event::Datagram(_) => {}
        }
        let (is_whole, due) = (page.document_read.is_some() && page.left == 0, page.due);
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
