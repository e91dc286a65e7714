"""Demo of a whole testbed on one machine, for two minutes: `skyhop testbed demo`.

    skyhop (the command)   runs the demo's experiments as a user of the testbed: `story`
    guard                  ends all other processes when the command ends: `guard`
    testbench              process 1, ancestor of all further processes: `testbench`
      orchestrator, with its web page at 127.0.0.1
      three links          `skyhop live`, one emulated path each
      three terminals      like `skyhop dish emulate`, with values measured on the link
      four agents          three sites and the server's node

Only the setup is special to the demo: `plan` holds sites, addresses and durations, `network`
connects the namespaces, `jobs` writes the job files, whose programs are `experiment` and `far_end`.
"""
