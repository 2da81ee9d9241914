"""Where frames come from: one adapter for each kind of source behind `edge_agent.capture.source.FrameSource`."""
