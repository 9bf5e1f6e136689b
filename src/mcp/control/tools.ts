import { approvalTools } from './approvals.ts';
import { brainTools } from './brain.ts';
import { catalogTools } from './catalog.ts';
import { executionTools } from './executions.ts';
import { explainTools } from './explain.ts';
import { observabilityTools } from './observability.ts';
import type { ControlPorts } from './ports.ts';
import { readinessTools } from './readiness.ts';
import { receiptTools } from './receipts.ts';
import { simulationTools } from './simulation.ts';
import type { ControlTool } from './tool.ts';

/** The table of control-plane tools, in the order in which they are listed. */
export function controlTools(ports: ControlPorts): readonly ControlTool[] {
  const others = [
    ...simulationTools(ports),
    ...explainTools(ports),
    ...brainTools(ports),
    ...approvalTools(ports),
    ...executionTools(ports),
    ...receiptTools(ports),
    ...observabilityTools(ports),
    ...readinessTools(ports),
  ];
  return [...catalogTools(ports, others), ...others];
}
