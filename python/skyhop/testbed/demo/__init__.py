"""A whole testbed on one machine for two minutes: `skyhop testbed demo`.

    skyhop (the command)   tells the story as any user of a testbed would: `story`
    guard                  ends everything when the command does, however that was: `guard`
    stage                  process 1 of everything else: `stage`
      orchestrator, with its page at 127.0.0.1
      three links          `skyhop live`, an emulated path each
      three terminals      as `skyhop dish emulate` has them, measured from the link
      four agents          three sites and the node that serves

Nothing of it is special to the demo but how it is put together: `plan` says what is where,
`network` joins the namespaces, `jobs` are the job files, which bring `experiment` and `far_end`.
"""
