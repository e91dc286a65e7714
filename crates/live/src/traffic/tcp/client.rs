//! The end that opens connections: one application for all of them, and one connection at a time.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, PoisonError};

use nix::errno::Errno;
use nix::sys::socket::{self, SockaddrIn};
use skyhop_app::{Action, Application, Event, Kind as _, Side};
use skyhop_host::clock::{sleep_until, wake_precisely};
use skyhop_host::error::{Context, HostError};
use skyhop_units::{Duration, Instant};

use super::connection::{Connection, Zeros};
use super::{Flow, options};

/// How long after an attempt to connect that failed the next one may come.
const RETRY: Duration = Duration::from_millis(100);

/// Does what the client's application asks for, from the flow's start to its end.
pub(super) fn run(flow: &Flow) -> Result<(), HostError> {
    flow.stage.namespace(flow.plan.from).enter()?;
    wake_precisely()?;
    if !sleep_until(flow.stage.clock, flow.plan.start, &flow.stage.stop)? {
        return Ok(());
    }
    let app = flow.plan.app.client(&flow.facts());
    let mut client = Client {
        flow,
        app,
        connection: None,
        asked_for: 0,
        connect_at: None,
        not_before: Instant::START,
        lost: None,
        zeros: Zeros::default(),
    };
    let broken = client.work()?;
    let connections = client.connection.into_iter().collect();
    flow.finish(Side::Client, connections, broken)
}

struct Client<'f> {
    flow: &'f Flow,
    app: Box<dyn Application>,
    connection: Option<Connection>,
    /// How many connections the application has asked for.
    asked_for: u32,
    /// When the last of them is to be opened, if it has not been yet …
    connect_at: Option<Instant>,
    /// … and when none may be, because one has just failed.
    not_before: Instant,
    /// Why the last connection was lost, if the application has not asked for another one.
    lost: Option<Errno>,
    zeros: Zeros,
}

impl Client<'_> {
    /// Works until the flow is over; returns why that was before its time.
    fn work(&mut self) -> Result<Option<String>, HostError> {
        while !self.flow.is_over() {
            let now = self.flow.now();
            self.look(now)?;
            let until = self.act(now)?;
            let is_whole = self.write(now)?;
            self.flow.collect(&mut *self.app)?;
            if !is_whole {
                continue;
            }
            if let Some(reason) = self.lost.filter(|_| self.has_broken(until)) {
                return Ok(Some(reason.desc().to_owned()));
            }
            let connection = self.connection.as_ref();
            let next = connection.map_or(Instant::NEVER, |connection| connection.next(now));
            let next = next.min(until).min(self.connect_at.unwrap_or(Instant::NEVER));
            let awaited = connection.and_then(|connection| connection.awaits(now));
            self.flow.wait(next, awaited.into_iter())?;
        }
        Ok(None)
    }

    /// Whether nothing more will be sent by an application that should have gone on.
    fn has_broken(&self, until: Instant) -> bool {
        let is_idle = self.connection.is_none() && self.connect_at.is_none();
        is_idle && until == Instant::NEVER && self.flow.view.sends() == Side::Client
    }

    /// Tells the application what has happened.
    fn look(&mut self, now: Instant) -> Result<(), HostError> {
        if self.connect_at.is_some_and(|at| at <= now) {
            self.connect_at = None;
            return self.connect(now);
        }
        let Some(connection) = &mut self.connection else { return Ok(()) };
        match connection.look(now) {
            Ok(event) => event.into_iter().for_each(|event| self.app.on_event(now, event)),
            Err(reason) => return self.lose(now, reason),
        }
        if connection.is_over() { self.close() } else { Ok(()) }
    }

    /// Does what the application asks for until it waits; returns until when.
    fn act(&mut self, now: Instant) -> Result<Instant, HostError> {
        loop {
            match self.app.poll(now) {
                Action::Wait(until) => return Ok(until),
                Action::Connect => {
                    self.close()?;
                    (self.connect_at, self.lost) = (Some(now.max(self.not_before)), None);
                    self.asked_for += 1;
                }
                Action::Abort => {
                    self.connect_at = None;
                    self.abort()?;
                }
                action => self.connection.iter_mut().for_each(|connection| connection.ask(action)),
            }
        }
    }

    /// Hands on what is to be written; false where the connection was lost.
    fn write(&mut self, now: Instant) -> Result<bool, HostError> {
        let Some(connection) = &mut self.connection else { return Ok(true) };
        match connection.write(&self.zeros) {
            Ok(()) => Ok(true),
            Err(reason) => self.lose(now, reason).map(|()| false),
        }
    }

    fn connect(&mut self, now: Instant) -> Result<(), HostError> {
        let flow = self.flow;
        let socket = Arc::new(options::open(&flow.plan, Side::Client)?);
        let connection = Connection::connecting(Arc::clone(&socket), flow.reader(Side::Client));
        // From here on a handshake in an outage shows in the samples.
        flow.view.opened(Side::Client, &connection);
        self.connection = Some(connection);
        let begun = flow
            .stage
            .namespace(flow.plan.from)
            .connecting(flow.plan.options.ecn, || self.begin_handshake(&socket))?;
        match begun {
            Ok(()) => options::batch_reads(&flow.plan, Side::Client, &socket),
            // All ports are taken by connections that have just been closed.
            Err(Errno::EADDRNOTAVAIL) => self.lose(now, Errno::EADDRNOTAVAIL),
            Err(error) => Err(error).context("cannot connect a flow"),
        }
    }

    fn begin_handshake(&self, socket: &OwnedFd) -> Result<(), Errno> {
        // Held until the number is there, for which the server may ask at once.
        let mut numbers = self.flow.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        match socket::connect(socket.as_raw_fd(), &SockaddrIn::from(self.flow.address)) {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let own: SockaddrIn = socket::getsockname(socket.as_raw_fd())?;
        numbers.insert(own.port(), self.asked_for - 1);
        Ok(())
    }

    fn lose(&mut self, now: Instant, reason: Errno) -> Result<(), HostError> {
        if self.connection.as_ref().is_some_and(Connection::is_connecting) {
            self.not_before = now + RETRY;
        }
        self.close()?;
        self.lost = Some(reason);
        self.app.on_event(now, Event::Lost);
        Ok(())
    }

    fn close(&mut self) -> Result<(), HostError> {
        self.connection.iter().try_for_each(Connection::deliver_when_closed)?;
        self.abort()
    }

    /// Closes the connection; the other end need not get what it has not got.
    fn abort(&mut self) -> Result<(), HostError> {
        let Some(connection) = self.connection.take() else { return Ok(()) };
        self.flow.view.closed(Side::Client, &connection)
    }
}
