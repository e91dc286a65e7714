//! The end that opens connections: one application for all of them, which has one at a time or several.

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
        opened: Vec::new(),
        asked_for: 0,
        turned: 0,
        not_before: Instant::START,
        lost: None,
        zeros: Zeros::default(),
    };
    let broken = client.work()?;
    let connections = client.opened.into_iter().filter_map(|one| one.connection).collect();
    flow.finish(Side::Client, connections, broken)
}

struct Client<'f> {
    flow: &'f Flow,
    app: Box<dyn Application>,
    /// What the application has asked for and has not done with.
    opened: Vec<Opened>,
    /// How many connections the application has asked for, each in place of the former.
    asked_for: u32,
    /// The number of that which its actions are about.
    turned: u32,
    /// When no connection may be opened, because one has just failed.
    not_before: Instant,
    /// Why the last connection was lost, if the application has not asked for another one.
    lost: Option<Errno>,
    zeros: Zeros,
}

/// A connection that the application has asked for.
struct Opened {
    number: u32,
    /// When it is to be opened, if it has not been yet.
    connect_at: Instant,
    connection: Option<Connection>,
}

impl Client<'_> {
    /// Works until the flow is over; returns why that was before its time.
    fn work(&mut self) -> Result<Option<String>, HostError> {
        loop {
            let now = self.flow.now();
            if self.flow.is_over(now) {
                return Ok(None);
            }
            self.look(now)?;
            let until = self.act(now)?;
            let is_whole = self.write(now)?;
            self.flow.collect(now, &mut *self.app)?;
            if !is_whole {
                continue;
            }
            if let Some(reason) = self.lost.filter(|_| self.has_broken(until)) {
                return Ok(Some(reason.desc().to_owned()));
            }
            let next = self.opened.iter().map(|one| one.next(now)).fold(until, Instant::min);
            let connections = self.opened.iter().filter_map(|one| one.connection.as_ref());
            self.flow.wait(next, connections.filter_map(|connection| connection.awaits(now)))?;
        }
    }

    /// Whether nothing more will be sent by an application that should have gone on.
    fn has_broken(&self, until: Instant) -> bool {
        let is_idle = self.opened.is_empty();
        is_idle && until == Instant::NEVER && self.flow.view.sends() == Side::Client
    }

    /// Tells the application what has happened.
    fn look(&mut self, now: Instant) -> Result<(), HostError> {
        let numbers: Vec<u32> = self.opened.iter().map(|one| one.number).collect();
        numbers.into_iter().try_for_each(|number| self.look_at(now, number))
    }

    fn look_at(&mut self, now: Instant, number: u32) -> Result<(), HostError> {
        let Some(opened) = self.opened.iter_mut().find(|one| one.number == number) else {
            return Ok(());
        };
        let Some(connection) = &mut opened.connection else {
            return if opened.connect_at <= now { self.connect(now, number) } else { Ok(()) };
        };
        match connection.look(now) {
            Ok(event) => {
                event.into_iter().for_each(|event| self.app.on_event_of(now, number, event));
            }
            Err(reason) => return self.lose(now, number, reason),
        }
        if connection.is_over() { self.close(number) } else { Ok(()) }
    }

    /// Does what the application asks for until it waits; returns until when.
    fn act(&mut self, now: Instant) -> Result<Instant, HostError> {
        loop {
            match self.app.poll(now) {
                Action::Wait(until) => return Ok(until),
                Action::Connect => {
                    self.close(self.turned)?;
                    self.open(now, self.asked_for);
                    self.asked_for += 1;
                }
                Action::Open(number) => self.open(now, number),
                Action::Turn(number) => self.turned = number,
                Action::Abort => self.abort(self.turned)?,
                action => {
                    let turned = self.opened.iter_mut().find(|one| one.number == self.turned);
                    let connection = turned.and_then(|one| one.connection.as_mut());
                    connection.into_iter().for_each(|connection| connection.ask(action));
                }
            }
        }
    }

    fn open(&mut self, now: Instant, number: u32) {
        let connect_at = now.max(self.not_before);
        self.opened.push(Opened { number, connect_at, connection: None });
        (self.turned, self.lost) = (number, None);
    }

    /// Hands on what is to be written; false where a connection was lost.
    fn write(&mut self, now: Instant) -> Result<bool, HostError> {
        let mut failed = Vec::new();
        for one in &mut self.opened {
            let Some(connection) = &mut one.connection else { continue };
            failed.extend(connection.write(&self.zeros).err().map(|reason| (one.number, reason)));
        }
        let is_whole = failed.is_empty();
        failed.into_iter().try_for_each(|(number, reason)| self.lose(now, number, reason))?;
        Ok(is_whole)
    }

    fn connect(&mut self, now: Instant, number: u32) -> Result<(), HostError> {
        let flow = self.flow;
        let socket = Arc::new(options::open(&flow.plan, Side::Client)?);
        let connection = Connection::connecting(Arc::clone(&socket), flow.reader(Side::Client));
        // From here on a handshake in an outage shows in the samples.
        flow.view.opened(Side::Client, &connection);
        if let Some(opened) = self.opened.iter_mut().find(|one| one.number == number) {
            opened.connection = Some(connection);
        }
        let begun = flow
            .stage
            .namespace(flow.plan.from)
            .connecting(flow.plan.options.ecn, || self.begin_handshake(&socket, number))?;
        match begun {
            Ok(()) => options::batch_reads(&flow.plan, Side::Client, &socket),
            // All ports are taken by connections that have just been closed.
            Err(Errno::EADDRNOTAVAIL) => self.lose(now, number, Errno::EADDRNOTAVAIL),
            Err(error) => Err(error).context("cannot connect a flow"),
        }
    }

    fn begin_handshake(&self, socket: &OwnedFd, number: u32) -> Result<(), Errno> {
        // Held until the number is there, for which the server may ask at once.
        let mut numbers = self.flow.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        match socket::connect(socket.as_raw_fd(), &SockaddrIn::from(self.flow.address)) {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let own: SockaddrIn = socket::getsockname(socket.as_raw_fd())?;
        numbers.insert(own.port(), number);
        Ok(())
    }

    fn lose(&mut self, now: Instant, number: u32, reason: Errno) -> Result<(), HostError> {
        let lost = self.opened.iter().find(|one| one.number == number);
        let connection = lost.and_then(|one| one.connection.as_ref());
        if connection.is_some_and(Connection::is_connecting) {
            self.not_before = now + RETRY;
        }
        self.close(number)?;
        self.lost = Some(reason);
        self.app.on_event_of(now, number, Event::Lost);
        Ok(())
    }

    fn close(&mut self, number: u32) -> Result<(), HostError> {
        let closed = self.opened.iter().find(|one| one.number == number);
        let connection = closed.and_then(|one| one.connection.as_ref());
        connection.map_or(Ok(()), Connection::deliver_when_closed)?;
        self.abort(number)
    }

    /// Closes a connection, or does not open it; the other end need not get what it has not got.
    fn abort(&mut self, number: u32) -> Result<(), HostError> {
        let Some(place) = self.opened.iter().position(|one| one.number == number) else {
            return Ok(());
        };
        let closed = self.opened.remove(place).connection;
        closed.map_or(Ok(()), |connection| self.flow.view.closed(Side::Client, &connection))
    }
}

impl Opened {
    /// When it has something to do whatever happens at the socket.
    fn next(&self, now: Instant) -> Instant {
        self.connection.as_ref().map_or(self.connect_at, |connection| connection.next(now))
    }
}
