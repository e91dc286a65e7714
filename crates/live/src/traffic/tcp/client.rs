//! Client end of a TCP flow: one application that opens connections, one at a time or several in parallel.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, PoisonError};

use nix::errno::Errno;
use nix::sys::socket::{self, SockaddrIn};
use skyhop_app::{Action, AppKind as _, Application, Event, Side};
use skyhop_host::clock::{minimize_timer_slack, sleep_until};
use skyhop_host::error::{Context, HostError};
use skyhop_units::{Duration, Instant};
use tracing::{debug, info};

use super::connection::{Connection, Zeros};
use super::{Flow, options};

/// Shortest interval between a failed connection attempt and the next one.
const RETRY: Duration = Duration::from_millis(100);

/// Run the client's application from the flow's start to its end.
pub(super) fn run(flow: &Flow) -> Result<(), HostError> {
    flow.testbench.namespace(flow.plan.from).enter()?;
    minimize_timer_slack()?;
    if !sleep_until(flow.testbench.clock, flow.plan.start, &flow.testbench.stop)? {
        return Ok(());
    }
    let app = flow.plan.app.client(&flow.facts());
    let mut client = Client {
        flow,
        app,
        opened: Vec::new(),
        connects: 0,
        current: 0,
        retry_at: Instant::START,
        lost: None,
        zeros: Zeros::default(),
    };
    let broken = client.run()?;
    let connections = client.opened.into_iter().filter_map(|one| one.connection).collect();
    flow.finish(Side::Client, connections, broken)
}

struct Client<'f> {
    flow: &'f Flow,
    app: Box<dyn Application>,
    /// Connections that the application has requested and not yet closed.
    opened: Vec<Opened>,
    /// Number of `Connect` actions so far, which is also the number of the next connection. Each
    /// action replaces the current connection.
    connects: u32,
    /// Number of the connection that the application's actions refer to.
    current: u32,
    /// Earliest time of the next connection attempt, after a failed one.
    retry_at: Instant,
    /// Error of the last lost connection, until the application opens another one.
    lost: Option<Errno>,
    zeros: Zeros,
}

/// Connection that the application has requested.
struct Opened {
    number: u32,
    /// Time at which to open the connection; unused once `connection` is set.
    connect_at: Instant,
    connection: Option<Connection>,
}

impl Client<'_> {
    /// Run until the flow is over; return the reason if it ended early.
    fn run(&mut self) -> Result<Option<String>, HostError> {
        loop {
            let now = self.flow.now();
            if self.flow.is_over(now) {
                return Ok(None);
            }
            self.poll_connections(now)?;
            let until = self.act(now)?;
            let all_open = self.write(now)?;
            self.flow.collect(now, &mut *self.app)?;
            if !all_open {
                continue;
            }
            if let Some(reason) = self.lost.filter(|_| self.has_broken(until)) {
                return Ok(Some(reason.desc().to_owned()));
            }
            let next = self.opened.iter().map(|one| one.next(now)).fold(until, Instant::min);
            let connections = self.opened.iter().filter_map(|one| one.connection.as_ref());
            self.flow
                .wait(next, connections.filter_map(|connection| connection.poll_events(now)))?;
        }
    }

    /// Whether the flow's sender has lost its last connection and would wait forever.
    fn has_broken(&self, until: Instant) -> bool {
        let is_idle = self.opened.is_empty();
        is_idle && until == Instant::NEVER && self.flow.view.sends() == Side::Client
    }

    /// Poll all connections and report their events to the application.
    fn poll_connections(&mut self, now: Instant) -> Result<(), HostError> {
        let numbers: Vec<u32> = self.opened.iter().map(|one| one.number).collect();
        numbers.into_iter().try_for_each(|number| self.poll_connection(now, number))
    }

    fn poll_connection(&mut self, now: Instant, number: u32) -> Result<(), HostError> {
        let Some(opened) = self.opened.iter_mut().find(|one| one.number == number) else {
            return Ok(());
        };
        let Some(connection) = &mut opened.connection else {
            return if opened.connect_at <= now { self.connect(now, number) } else { Ok(()) };
        };
        match connection.poll(now) {
            Ok(event) => {
                event
                    .into_iter()
                    .for_each(|event| self.app.on_connection_event(now, number, event));
            }
            Err(reason) => return self.lose(now, number, reason),
        }
        if connection.is_over() { self.close(number) } else { Ok(()) }
    }

    /// Execute the application's actions until it waits; return the time until which it waits.
    fn act(&mut self, now: Instant) -> Result<Instant, HostError> {
        loop {
            match self.app.poll(now) {
                Action::Wait(until) => return Ok(until),
                Action::Connect => {
                    self.close(self.current)?;
                    self.open(now, self.connects);
                    self.connects += 1;
                }
                Action::Open(number) => self.open(now, number),
                Action::Select(number) => self.current = number,
                Action::Abort => self.abort(self.current)?,
                action => {
                    let opened = self.opened.iter_mut().find(|one| one.number == self.current);
                    let connection = opened.and_then(|one| one.connection.as_mut());
                    connection.into_iter().for_each(|connection| connection.apply(action));
                }
            }
        }
    }

    fn open(&mut self, now: Instant, number: u32) {
        let connect_at = now.max(self.retry_at);
        self.opened.push(Opened { number, connect_at, connection: None });
        (self.current, self.lost) = (number, None);
    }

    /// Write to all connections; return false if a connection was lost.
    fn write(&mut self, now: Instant) -> Result<bool, HostError> {
        let mut failed = Vec::new();
        for one in &mut self.opened {
            let Some(connection) = &mut one.connection else { continue };
            failed.extend(connection.write(&self.zeros).err().map(|reason| (one.number, reason)));
        }
        let all_open = failed.is_empty();
        failed.into_iter().try_for_each(|(number, reason)| self.lose(now, number, reason))?;
        Ok(all_open)
    }

    fn connect(&mut self, now: Instant, number: u32) -> Result<(), HostError> {
        let flow = self.flow;
        let socket = Arc::new(options::open(&flow.plan, Side::Client)?);
        let connection = Connection::connecting(Arc::clone(&socket), flow.reader(Side::Client));
        // Register before the handshake, so that a handshake during an outage appears in the samples.
        flow.view.opened(Side::Client, &connection);
        if let Some(opened) = self.opened.iter_mut().find(|one| one.number == number) {
            opened.connection = Some(connection);
        }
        debug!(flow = flow.plan.id, connection = number, "connects");
        let begun = flow
            .testbench
            .namespace(flow.plan.from)
            .connect_with_ecn(flow.plan.options.ecn, || self.begin_handshake(&socket, number))?;
        match begun {
            Ok(()) => options::batch_reads(&flow.plan, Side::Client, &socket),
            // All ports are in use by connections that have just been closed.
            Err(Errno::EADDRNOTAVAIL) => self.lose(now, number, Errno::EADDRNOTAVAIL),
            Err(error) => Err(error).context("cannot connect a flow"),
        }
    }

    fn begin_handshake(&self, socket: &OwnedFd, number: u32) -> Result<(), Errno> {
        // The map stays locked until the number is inserted, because the server may look it up as
        // soon as the SYN arrives.
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
            self.retry_at = now + RETRY;
        }
        let (flow, reason_text) = (self.flow.plan.id, reason.desc());
        info!(flow, connection = number, reason = reason_text, "connection lost");
        self.close(number)?;
        self.lost = Some(reason);
        self.app.on_connection_event(now, number, Event::Lost);
        Ok(())
    }

    fn close(&mut self, number: u32) -> Result<(), HostError> {
        let closed = self.opened.iter().find(|one| one.number == number);
        let connection = closed.and_then(|one| one.connection.as_ref());
        connection.map_or(Ok(()), Connection::deliver_when_closed)?;
        self.abort(number)
    }

    /// Abort a connection, even before it is opened; undelivered data is discarded.
    fn abort(&mut self, number: u32) -> Result<(), HostError> {
        let Some(place) = self.opened.iter().position(|one| one.number == number) else {
            return Ok(());
        };
        let closed = self.opened.remove(place).connection;
        closed.map_or(Ok(()), |connection| self.flow.view.closed(Side::Client, &connection))
    }
}

impl Opened {
    /// Time of the next action that does not depend on the socket.
    fn next(&self, now: Instant) -> Instant {
        self.connection.as_ref().map_or(self.connect_at, |connection| connection.next(now))
    }
}
